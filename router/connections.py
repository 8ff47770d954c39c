"""What one port allows its connections, and the sweep that ends those which overstay.

    connect ──head_s──▶ head ──body_s per 4 KiB──▶ body ──▶ answer ──keep_alive_s──▶ next head
                                                              └─ read_s: the client must take some of it

Each connection carries one deadline, a number that it moves as it goes from phase to phase; one timer a
port looks through all of them, so that a request costs no timer and no task. A deadline is kept within
``SWEEP_S``, or a quarter of the shortest timeout where that is less.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from router.errors import ErrorKind, FrontDoorError

MAX_HEAD_BYTES = 64 * 1024  # a longer head, or as much of chunk framing and trailers: 431
MAX_HELD_BYTES = 64 * 1024  # of further requests that come while one is answered
MAX_PIPELINED = 16  # whole requests in one read
NUM_SURPLUS = 64  # connections beyond the bound that still get an answer in HTTP to what they ask
MIN_BODY_BYTES = 4096  # of a body, within each ``body_s``
SWEEP_S = 1.0
LINGER_S = 2.0
NEVER = float("inf")


class ConnectionEnd(StrEnum):
    """Why a port ended a connection, or would not read on from it."""

    MALFORMED = "malformed"
    HEAD_TOO_LARGE = "head_too_large"
    HEAD_TIMEOUT = "head_timeout"
    BODY_TIMEOUT = "body_timeout"
    READ_TIMEOUT = "read_timeout"
    TOO_MANY = "too_many"
    HANDSHAKE = "handshake"
    PIPELINED = "pipelined"


# What a client is told, where no answer is on its way to it.
REFUSALS = {
    ConnectionEnd.MALFORMED: FrontDoorError(
        ErrorKind.MALFORMED, "the request is not valid HTTP/1.1"
    ),
    ConnectionEnd.HEAD_TOO_LARGE: FrontDoorError(
        ErrorKind.HEAD_TOO_LARGE, f"the request's head is longer than {MAX_HEAD_BYTES} bytes"
    ),
    ConnectionEnd.HEAD_TIMEOUT: FrontDoorError(
        ErrorKind.REQUEST_TIMEOUT, "the request's head did not come in time"
    ),
    ConnectionEnd.BODY_TIMEOUT: FrontDoorError(
        ErrorKind.REQUEST_TIMEOUT, "the request's body did not come in time"
    ),
    ConnectionEnd.TOO_MANY: FrontDoorError(
        ErrorKind.TOO_MANY_CONNECTIONS, "too many connections are open"
    ),
}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one port.

    Attributes:
        max_connections: ``NUM_SURPLUS`` further ones are served the paths that end at the router, and
            refused the rest with 503; beyond those a connection gets 503 unasked.
        head_s: from the connection, or the first byte, to the end of a request's head; then 408.
        body_s: within which ``MIN_BODY_BYTES`` more of a body, or its end, must come; then 408.
        read_s: within which a client must read some of an answer that waits for it; then it has left.
        keep_alive_s: that a connection may idle between two requests.
    """

    max_connections: int = 16_384
    head_s: float = 15.0
    body_s: float = 30.0
    read_s: float = 300.0
    keep_alive_s: float = 75.0


class Connection(Protocol):
    """One that can overstay."""

    due: float

    def expire(self, now: float) -> None:
        """Its deadline has passed."""


class ConnectionGuard:
    """The open connections of one port. Its timer runs while there are any.

    Attributes:
        ended: connections that were given up, by why.
        num_shaking: handshakes of TLS that are under way.
        on_refused: called with the client's address where something is refused that never became a request.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.ended: Counter[ConnectionEnd] = Counter()
        self.num_shaking = 0
        self.on_refused: Callable[[ConnectionEnd, tuple[str, int] | None], None] | None = None
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        shortest = min(limits.head_s, limits.body_s, limits.read_s, limits.keep_alive_s)
        self._sweep_s = min(SWEEP_S, shortest / 4)

    @property
    def num_open(self) -> int:
        """Connections at the moment."""
        return len(self._open)

    def join(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """A connection was made."""
        self._open.add(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._sweep_s, self._sweep, loop)

    def leave(self, connection: Connection) -> None:
        """It was lost."""
        self._open.discard(connection)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """O(connections), some 50 ns each."""
        self._timer = loop.call_later(self._sweep_s, self._sweep, loop)
        now = loop.time()
        for connection in [one for one in self._open if one.due <= now]:
            connection.expire(now)
