"""Fields of what a worker says of itself, taken only where they are fit to be used.

A worker's words go on into sockets, logs, JSON and metrics, so text is printable and short, ports are
ports, sizes are sizes. A field of an odd type is taken as absent; one of the right type and a bad value is
too, and is a fault, told with its name.
"""

from collections.abc import Mapping

import orjson

from router.plain_text import MAX_TEXT, is_host, is_plain

MAX_FAULTS = 16
MAX_CARDS = 1024
MAX_CARD_BYTES = 16 * 1024
MAX_BLOCK_SIZE = 1 << 20
MAX_LENGTH = 1 << 40
_WILDCARDS = frozenset({"", "*", "0.0.0.0", "::", "[::]"})


class AnswerFields:
    """Reads fields and remembers what was wrong with them.

    Attributes:
        faults: the first ``MAX_FAULTS``, each naming its field.
        num_faults: all of them.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.num_faults = 0

    def fault(self, what: str) -> None:
        """Something was not taken."""
        self.num_faults += 1
        if len(self.faults) < MAX_FAULTS and what not in self.faults:
            self.faults.append(what)

    def text(self, value: object, name: str) -> str | None:
        """Printable text of at most ``MAX_TEXT`` characters; None for none, or an empty one."""
        if not isinstance(value, str) or not value:
            return None
        if not is_plain(value):
            self.fault(f"{name}: not printable, or longer than {MAX_TEXT} characters")
            return None
        return value

    def host(self, value: object, name: str) -> str | None:
        """A host, or a wildcard for the worker's own; a wildcard where none is given."""
        if not isinstance(value, str) or value in _WILDCARDS:
            return "*"
        bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        if not is_host(bare):
            self.fault(f"{name}: neither a host name nor an address")
            return None
        return bare

    def port(self, value: object, name: str) -> int | None:
        """1 to 65535."""
        return self.size(value, name, 65_535)

    def size(self, value: object, name: str, at_most: int) -> int | None:
        """A whole number of at least 1."""
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        if not 1 <= value <= at_most:
            self.fault(f"{name}: not between 1 and {at_most}")
            return None
        return value

    def cards(self, models: object) -> tuple[Mapping[str, object], ...]:
        """Entries of ``/v1/models`` that have a name and can be shown: at most ``MAX_CARDS``, each of at
        most ``MAX_CARD_BYTES`` as JSON."""
        data = fields_of(models).get("data")
        if not isinstance(data, list):
            return ()
        if len(data) > MAX_CARDS:
            self.fault(f"/v1/models: more than {MAX_CARDS} entries")
        return tuple(card for card in data[:MAX_CARDS] if self._is_card(card))

    def _is_card(self, card: object) -> bool:
        name = fields_of(card).get("id")
        if not isinstance(name, str) or not name or not is_plain(name):
            self.fault("/v1/models: an entry whose id is no name")
            return False
        try:
            is_short = len(orjson.dumps(card)) <= MAX_CARD_BYTES
        except (TypeError, ValueError):
            is_short = False
        if not is_short:
            self.fault(f"/v1/models: the entry {name!r} cannot be shown")
        return is_short


def fields_of(value: object) -> Mapping[str, object]:
    """An object's fields; none of what is no object."""
    return value if isinstance(value, dict) else {}
