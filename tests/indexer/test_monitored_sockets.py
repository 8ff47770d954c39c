"""A publisher whose connections break all the time costs nobody else's events, watched or given up."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator

import pytest
import zmq

from indexer.socket_limits import SocketLimits
from indexer.source_sockets import SourceSockets
from protocol import EventSource, Rank, WorkerId
from tests.indexer.loopback import Changes, LoopbackPublisher

LIMITS = SocketLimits(io_threads=1, reconnect_s=0.001, reconnect_max_s=0.001)
NOTICES_HELD = 2_000  # by default, of a monitor that nobody reads
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"PUB"


class FlappingPublisher:
    """Shakes hands as a PUB socket does, and breaks the connection.

    Attributes:
        num_breaks: so far.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._meetings: set[asyncio.Task[None]] = set()
        self.num_breaks = 0
        self.source = EventSource(Rank(WorkerId("flapping")), "", None)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.source = EventSource(self.source.rank, f"tcp://127.0.0.1:{port}", None)
        async with server:
            yield
        for meeting in self._meetings:
            meeting.cancel()
        await asyncio.gather(*self._meetings, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meeting = asyncio.current_task()
        assert meeting is not None
        self._meetings.add(meeting)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                writer.write(_GREETING + b"\x04" + bytes([len(_READY)]) + _READY)
                await reader.readexactly(len(_GREETING))
                await reader.read(64)
            writer.close()
            self.num_breaks += 1
            self._changes.note()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            self._meetings.discard(meeting)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(LIMITS.io_threads)
    yield context
    context.destroy(linger=0)


async def _is_heard(changes: Changes, publisher: LoopbackPublisher, sockets: SourceSockets) -> bool:
    """Whether one more message of the publisher arrives."""
    sockets.pending.clear()
    publisher.publish(1)

    def has_come() -> bool:
        sockets.collect()
        return any(isinstance(item, list) for item in sockets.pending)

    await changes.until(has_come)
    return True


async def test_sockets_that_close_while_their_connection_breaks_leave_the_others_alone(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    flapping, sound = FlappingPublisher(changes), LoopbackPublisher(changes)
    heard = SourceSockets(context, sound.source("w"), LIMITS, lambda _: changes.note(), 0)
    await changes.until(lambda: sound.num_subscribers)
    async with flapping.running():
        for number in range(1, 40):
            broken = SourceSockets(
                context, flapping.source, LIMITS, lambda _: changes.note(), number
            )
            enough = flapping.num_breaks + 1 + number % 7
            await changes.until(lambda: flapping.num_breaks >= enough)  # noqa: B023
            broken.close()
            assert await _is_heard(changes, sound, heard)
    heard.close()
    sound.close()


async def test_notices_that_nobody_reads_keep_no_other_socket_waiting(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    flapping, sound = FlappingPublisher(changes), LoopbackPublisher(changes)
    heard = SourceSockets(context, sound.source("w"), LIMITS, lambda _: changes.note(), 0)
    await changes.until(lambda: sound.num_subscribers)
    async with flapping.running():
        unread = SourceSockets(context, flapping.source, LIMITS, lambda _: changes.note(), 1)
        await changes.until(lambda: 2 * flapping.num_breaks > NOTICES_HELD)  # two or three each
        assert await _is_heard(changes, sound, heard)
        unread.close()
        assert await _is_heard(changes, sound, heard)
    heard.close()
    sound.close()
