"""A connection to a worker without a socket: bytes go in by hand, and what it does to its transport is seen."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from router.headers import RawHeader
from router.upstream import Fault, UpstreamAnswer, UpstreamError, UpstreamTimeouts
from router.upstream_connection import UpstreamConnection

TIMEOUTS = UpstreamTimeouts(connect_s=1, first_byte_s=600, idle_s=300)


class HandTransport(asyncio.Transport):
    """Remembers what is written and asked of it. Takes ``room`` bytes before it pauses its protocol."""

    def __init__(self, room: int = 1 << 60, *, is_tls: bool = False) -> None:
        super().__init__({"ssl_object": object()} if is_tls else None)
        self.writes: list[bytes] = []
        self.room = room
        self.protocol: asyncio.BaseProtocol | None = None
        self.num_unsent = 0
        self.is_aborted = False
        self.is_reading_now = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it; pause the protocol where it is more than there is room for."""
        assert not self.is_aborted, "a closed transport was written to"
        self.writes.append(bytes(data))
        self.room -= len(data)
        self.num_unsent = max(0, -self.room)
        if self.room < 0 and self.protocol is not None:
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """As one write."""
        self.write(b"".join(list_of_data))

    def make_room(self, num_bytes: int) -> None:
        """The peer has read so much."""
        assert self.protocol is not None
        self.room = num_bytes
        self.num_unsent = 0
        self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        """What the peer has not taken."""
        return self.num_unsent

    def pause_reading(self) -> None:
        """Read nothing more."""
        assert self.is_reading_now, "paused twice"
        self.is_reading_now = False

    def resume_reading(self) -> None:
        """Read on."""
        assert not self.is_reading_now, "resumed twice"
        self.is_reading_now = True

    def expect_reading(self, *, is_reading: bool) -> None:
        """Does it read?"""
        assert self.is_reading_now is is_reading

    def is_closing(self) -> bool:
        """Closed, or about to be."""
        return self.is_aborted

    def abort(self) -> None:
        """Close."""
        self.is_aborted = True


class HandClock:
    """What a connection needs of the running loop, ahead of its time by ``ahead_s``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.create_future = self._loop.create_future
        self.call_soon = self._loop.call_soon
        self.ahead_s = 0.0

    def time(self) -> float:
        """The loop's time, moved."""
        return self._loop.time() + self.ahead_s


@dataclass
class Seen:
    """What became of an answer."""

    status: int = 0
    headers: list[RawHeader] = field(default_factory=list)
    body: bytes = b""
    fault: Fault | None = None
    is_stale: bool = False
    is_kept: bool = False


class Line:
    """One connection, and its home."""

    def __init__(self, room: int = 1 << 60, *, is_tls: bool = False) -> None:
        self.transport = HandTransport(room, is_tls=is_tls)
        self.num_released = 0
        self.num_lost = 0
        self.clock = HandClock()
        loop = cast("asyncio.AbstractEventLoop", self.clock)
        self.connection = UpstreamConnection(self, loop, TIMEOUTS)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def released(self, connection: UpstreamConnection, now: float) -> None:
        """It can serve again."""
        assert connection.is_usable
        self.num_released += 1

    def lost(self, connection: UpstreamConnection) -> None:
        """It is gone."""
        self.num_lost += 1

    def ask(self, method: str = "GET", body: bytes = b"") -> UpstreamAnswer:
        """Send a request."""
        head = f"{method} / HTTP/1.1\r\n\r\n".encode()
        return self.connection.send(head, body, is_head_request=method == "HEAD")

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Bytes from the worker, a read of the socket each; none after the connection was closed."""
        for piece in pieces:
            if piece and not self.transport.is_aborted:
                self.connection.data_received(piece)

    def close(self, exc: Exception | None = None) -> None:
        """The worker closes the connection, or resets it."""
        if exc is None and not self.transport.is_aborted:
            self.connection.eof_received()
        self.transport.is_aborted = True
        self.connection.connection_lost(exc)


def seen(answer: UpstreamAnswer, line: Line) -> Seen:
    """What the reader gets of it, to the last byte, and what became of the connection."""
    found = Seen(answer.status, answer.headers, is_kept=line.connection.is_usable)
    try:
        while chunk := answer.take_now():
            found.body += chunk
    except UpstreamError as error:
        found.fault, found.is_stale = error.fault, error.is_stale
    return found
