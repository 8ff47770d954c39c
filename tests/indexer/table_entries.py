"""Every entry of every table of an index, known to a test or not."""

from collections import deque
from collections.abc import Iterator

from indexer.fleet_index import FleetIndex

Container = dict[object, object] | list[object] | set[object] | deque[object] | tuple[object, ...]


def containers(root: object) -> Iterator[Container]:
    """Every container that is reached from an object of ours, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | type | None):
            continue
        seen.add(id(one))
        if isinstance(one, dict | list | set | frozenset | deque | tuple):
            if not isinstance(one, frozenset):
                yield one
            waiting += one.values() if isinstance(one, dict) else one
            waiting += one if isinstance(one, dict) else ()
        elif type(one).__module__.startswith(("indexer", "protocol")):
            waiting += parts(one)


def parts(one: object) -> list[object]:
    """What an object keeps, in slots or not."""
    found = list(getattr(one, "__dict__", {}).values())
    for kind in type(one).__mro__:
        slots = getattr(kind, "__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        found += [
            getattr(one, _mangled(kind, name))
            for name in names
            if hasattr(one, _mangled(kind, name))
        ]
    return found


def _mangled(kind: type, name: str) -> str:
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__}{name}" if is_private else name


def num_entries(index: FleetIndex) -> int:
    return sum(map(len, containers(index)))
