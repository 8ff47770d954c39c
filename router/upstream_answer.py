"""A worker's answer between the connection that it comes over and the one who reads it.

    connection ── head, pieces, end or fault ──▶ answer ── read(), take_now() ──▶ relay

There is one reader. What has come is kept until it is taken, all at once; a reader that waits is woken once
for all that one read of the socket brought, so that a small answer costs one wake-up, head and body. Above
``HIGH_WATER_BYTES`` of what is not taken the connection stops reading. A whole answer lets go of its
connection, read or not.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from router.headers import RawHeader
from router.upstream_faults import Fault, UpstreamError

HIGH_WATER_BYTES = 128 * 1024
PIECE_BYTES = 64  # what keeping a piece costs beside its bytes


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """Seconds: to connect, until the first byte of the body, and of silence between two reads of it."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class Carrier(Protocol):
    """The connection that an answer comes over."""

    def expect_within(self, limit_s: float) -> asyncio.Future[None]:
        """What a reader waits on from now on, at most so long."""

    def read_on(self) -> None:
        """What had come was taken."""

    def abandon(self) -> None:
        """Nobody wants the rest: close at once."""


class UpstreamAnswer:
    """One answer, as it arrives. Close it on every path.

    Attributes:
        status: 0 until the head has come.
        headers: as the worker wrote them, in order.
        pieces: of the body, come and not taken.
        unread_bytes: what keeping ``pieces`` costs.
        is_ended: the body has come to its proper end.
    """

    __slots__ = (
        "_carrier",
        "_error",
        "_limit_s",
        "_timeouts",
        "_waiter",
        "headers",
        "is_ended",
        "pieces",
        "status",
        "unread_bytes",
    )

    def __init__(self, carrier: Carrier, timeouts: UpstreamTimeouts) -> None:
        self.status = 0
        self.headers: list[RawHeader] = []
        self.pieces: list[bytes] = []
        self.unread_bytes = 0
        self.is_ended = False
        self._carrier: Carrier | None = carrier
        self._timeouts = timeouts
        self._limit_s = timeouts.first_byte_s
        self._waiter: asyncio.Future[None] | None = None
        self._error: tuple[Fault, str, bool] | None = None

    # Of the reader

    @property
    def is_complete(self) -> bool:
        """Has the whole body been read?"""
        return self.is_ended and not self.pieces

    async def begun(self) -> None:
        """Wait for the head.

        Raises:
            UpstreamError: none came.
        """
        if not self.status and self._carrier is not None:
            await self._news(self._carrier)
        if not self.status:
            self._raise()

    async def read(self) -> bytes:
        """Whatever has arrived, waiting for at least a byte; empty at the end of the body.

        Raises:
            UpstreamError: the worker broke off or fell silent.
        """
        if not self.pieces and self._carrier is not None:
            await self._news(self._carrier)
        return self.take_now()

    def take_now(self) -> bytes:
        """Whatever has arrived, without waiting. Where ``is_ended``, that is all the rest of the body.

        Raises:
            UpstreamError: the worker broke off or fell silent, and all that came before was taken.
        """
        pieces = self.pieces
        if not pieces:
            if self._error is not None:
                self._raise()
            return b""
        chunk = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.pieces = []
        self.unread_bytes = 0
        self._limit_s = self._timeouts.idle_s
        if self._carrier is not None:
            self._carrier.read_on()
        return chunk

    def close(self) -> None:
        """Drop what has come, and close the connection of an answer that is not whole: the worker sees that
        and stops."""
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            self._error = self._error or (Fault.RESET, "closed by its reader", False)
            carrier.abandon()
        self.pieces.clear()

    # Of the connection

    @property
    def is_awaited(self) -> bool:
        """Does the reader wait?"""
        return self._waiter is not None and not self._waiter.done()

    def end(self) -> None:
        """The connection has no more of it."""
        self._carrier = None

    def fail(self, fault: Fault, detail: str, *, is_stale: bool = False) -> None:
        """Nothing more will come. Wakes the reader."""
        self._carrier = None
        self._error = (fault, detail, is_stale)
        self.wake()

    def wake(self) -> None:
        """There is news for the reader."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _news(self, carrier: Carrier) -> asyncio.Future[None]:
        self._waiter = waiter = carrier.expect_within(self._limit_s)
        return waiter

    def _raise(self) -> None:
        """Raise the fault, made anew: one that is kept would keep the frames that it passed."""
        assert self._error is not None, "an answer without head or connection has failed"
        fault, detail, is_stale = self._error
        raise UpstreamError(fault, detail, is_stale=is_stale)
