"""What an engine tells in its metrics and nowhere else: block size, ranks, sleep.

Read line by line, each line once from left to right, so that no text takes longer than its length.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

_MAX_LINE = 16 * 1024
"""Longer lines are not read: real ones have some hundred characters."""
_MAX_LABEL = 4


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What was found.

    Attributes:
        block_size: as the cache's configuration says, unchecked; None where it is not told.
        engines: data-parallel ranks that report.
        is_asleep: every engine that tells its sleep state says that it is not awake.
    """

    block_size: int | None = None
    engines: frozenset[str] = field(default_factory=frozenset)
    is_asleep: bool = False


def read_metrics(text: str) -> EngineMetrics:
    """One pass over vLLM's ``/metrics``; O(length)."""
    block_size: int | None = None
    engines: set[str] = set()
    awake: list[bool] = []
    for name, labels, value in _samples(text):
        if name.endswith("cache_config_info"):
            block_size = block_size or _number(_label(labels, "block_size"))
        elif name.startswith("vllm:num_requests_running"):
            engine = _label(labels, "engine")
            if _number(engine) is not None and len(engine) <= _MAX_LABEL:
                engines.add(engine)
        elif name == "vllm:engine_sleep_state" and _label(labels, "sleep_state") == "awake":
            awake += [value in ("1", "1.0")] if value in ("0", "0.0", "1", "1.0") else []
    return EngineMetrics(block_size, frozenset(engines), bool(awake) and not any(awake))


def _samples(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, labels, value of each sample that has labels."""
    for line in text.splitlines():
        if line.startswith("#") or len(line) > _MAX_LINE:
            continue
        name, _, rest = line.partition("{")
        labels, end, value = rest.partition("}")
        if end:
            yield name, labels, value.strip()


def _label(labels: str, name: str) -> str:
    """A label's value; empty where there is none."""
    start = f'{name}="'
    for part in labels.split(","):
        if part.startswith(start):
            return part[len(start) :].removesuffix('"')
    return ""


def _number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 6 else None
