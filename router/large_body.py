"""A large body on its way to a worker: handed to the transport piece by piece, as fast as the worker reads."""

import asyncio
from functools import partial

from router.close_notify import is_encrypted

WRITE_BYTES = 256 * 1024
"""Handed to the transport at once."""


class LargeBody:
    """What is unsent of one body. It goes on by itself where nothing else would make it, and ends with its connection."""

    __slots__ = ("_is_paused", "_loop", "_transport", "_unsent")

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        body: bytes,
        *,
        is_paused: bool,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._unsent: memoryview | None = memoryview(body)
        self._is_paused = is_paused

    @property
    def is_sent(self) -> bool:
        """Whether all of it was handed over."""
        return self._unsent is None

    def pause(self) -> None:
        """The worker reads too slowly."""
        self._is_paused = True

    def resume(self) -> None:
        """It has caught up."""
        self._is_paused = False
        self.write_on()

    def write_on(self, head: bytes = b"") -> None:
        """Hand over more, behind this head. Over TLS, which has no `last_words`, what the worker says is read before each
        further piece: a write that meets a reset would lose it."""
        transport = self._transport
        while self._unsent and not self._is_paused and not transport.is_closing():
            piece, rest = self._unsent[:WRITE_BYTES], self._unsent[WRITE_BYTES:]
            self._unsent = rest if len(rest) else None
            transport.writelines((head, piece))
            head = b""
            if is_encrypted(transport):
                self._loop.call_soon(partial(self._loop.call_soon, self.write_on))
                return
