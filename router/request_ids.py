"""Names for requests that come without one: 128 random bits each, drawn from the system many at a time."""

import os
from collections.abc import Iterator

_ID_BYTES = 16
_DRAWN = 256


def new_ids() -> Iterator[str]:
    """One after the other, for ever."""
    while True:
        drawn = os.urandom(_ID_BYTES * _DRAWN).hex()
        for at in range(0, len(drawn), 2 * _ID_BYTES):
            yield drawn[at : at + 2 * _ID_BYTES]
