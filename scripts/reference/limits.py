"""Reference of the bounds that no configuration changes, read from the classes that hold them."""

from dataclasses import fields

from indexer.limits import IndexLimits
from indexer.socket_limits import SocketLimits
from indexer.stream_limits import StreamLimits
from router.made_ids import MadeIdLimits
from scoring import PlannerLimits
from scripts.reference.docstrings import attributes, intro
from scripts.reference.markdown import code, page, sentence, table
from scripts.reference.memory import memory

_INTRO = (
    "What is kept, how many, and how long; whatever reaches a bound is counted. Names end in their unit. "
    "What they are for: [trust and evidence](../explanation/trust-and-evidence.md)."
)
_CLASSES = (
    ("The index", IndexLimits),
    ("Event streams", StreamLimits),
    ("Event sockets", SocketLimits),
    ("The planner", PlannerLimits),
    ("Ids of what workers keep", MadeIdLimits),
)


def limits() -> str:
    """The page."""
    parts = [_INTRO]
    for title, described in _CLASSES:
        meanings = attributes(described)
        rows = [
            (code(one.name), code(f"{one.default:,}"), sentence(meanings[one.name]))
            for one in fields(described)
        ]
        parts += [
            f"## {title}",
            sentence(intro(described)),
            table(("bound", "value", "meaning"), rows),
        ]
        if described is IndexLimits:
            parts += ["### The worst case in bytes", *memory(IndexLimits())]
    return page("Bounds", *parts)
