"""Topics of event streams with the worker's own name, host or model in them.

kv@{host}@{model}   for the worker at http://10.0.0.1:8000 that serves llama   kv@10.0.0.1@llama
"""

import re
from urllib.parse import urlsplit

from protocol import WorkerSpec

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = frozenset({"worker", "host", "port", "model"})
_TELLS_APART = frozenset({"worker", "host"})


def topic_fault(topic: str) -> str | None:
    """What is wrong with a topic's fields; None where nothing is."""
    unknown = [name for name in _FIELD.findall(topic) if name not in _FIELDS]
    if unknown or set(_FIELD.sub("", topic)) & set("{}"):
        return "what stands in braces is one of " + ", ".join(sorted(_FIELDS))
    return None


def tells_workers_apart(topic: str) -> bool:
    """Is it another topic for each worker?"""
    return not _TELLS_APART.isdisjoint(_FIELD.findall(topic))


def topic_of(topic: str, spec: WorkerSpec) -> str:
    """The topic of one worker."""
    url = urlsplit(spec.url)
    values = {
        "worker": str(spec.worker),
        "host": url.hostname or "",
        "port": str(url.port or ""),
        "model": spec.model,
    }
    return _FIELD.sub(lambda field: values.get(field[1], field[0]), topic)
