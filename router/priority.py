"""How urgent a request is, and how long it may wait: as its client says, within what its key allows.

Engines read a field ``priority`` in bodies, each in a way of its own: SGLang serves the higher first, vLLM the lower,
and both only where they are told to. So the queue has header fields of its own, and leaves bodies alone.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from router.headers import RawHeader, header

PRIORITY = b"x-kvroute-priority"
TIMEOUT = b"x-kvroute-queue-timeout"
MAX_PRIORITY = 100
"""Priorities are from its negative to it."""
_WHOLE = re.compile(rb"[+-]?[0-9]{1,9}")
_SECONDS = re.compile(rb"[0-9]{1,9}(\.[0-9]{0,9})?")


class PriorityRight(NamedTuple):
    """What priorities a client has.

    Attributes:
        usual: of requests that name none.
        highest: of those that do; what is above it counts as it.
    """

    usual: int = 0
    highest: int = 0


def priority_of(headers: Iterable[RawHeader], right: PriorityRight) -> int:
    """The request's priority; what is no whole number names none. Names are lower case."""
    value = header(headers, PRIORITY)
    if value is None or not _WHOLE.fullmatch(value):
        return right.usual
    return max(min(int(value), right.highest), -MAX_PRIORITY)


def wait_bound_s(headers: Iterable[RawHeader], longest_s: float) -> float:
    """Seconds that the request may wait; what is no number, or longer than may be, is the longest."""
    value = header(headers, TIMEOUT)
    if value is None or not _SECONDS.fullmatch(value):
        return longest_s
    return min(float(value), longest_s)
