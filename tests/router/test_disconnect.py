"""Clients that leave: in every phase the worker sees its connection close, and nothing stays booked."""

import asyncio
from collections.abc import Callable

import pytest

from router.body import ClientClosedError
from router.connections import ConnectionEnd
from router.disconnect import DisconnectWatch
from router.http_cycle import FrontDoorCycle
from scoring import OutcomeKind
from tests.router.front_door import WireClient, ask, connect, front_door
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk, response, stub_worker

CHAT = "/v1/chat/completions"
STREAMING = b'{"model":"m","stream":true}'
BOUND_S = 1.0


async def headers_only(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")


async def part_of_a_body(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")


async def part_of_a_stream(peer: Peer) -> None:
    await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))


async def nothing(peer: Peer) -> None:
    pass


@pytest.mark.parametrize("body", [b'{"model":"m"}', STREAMING])
@pytest.mark.parametrize("begin", [nothing, headers_only, part_of_a_body, part_of_a_stream])
async def test_a_client_that_leaves_cancels_its_worker(begin, body: bytes) -> None:  # type: ignore[no-untyped-def]
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await begin(peer)
        await peer.gone()
        gone.set()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", CHAT, body=body)
            await worker.arrived.acquire()
            if begin is not nothing:
                await client.head()
            client.close()
            async with asyncio.timeout(BOUND_S):
                await gone.wait()
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED]
    assert list(door.counters.requests) == [("chat", "closed")]


def in_pieces(data: bytes, size: int) -> list[bytes]:
    """All of it in writes of this size."""
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("begin", [nothing, headers_only, part_of_a_stream])
@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("num_writes", [1, 3])
@pytest.mark.parametrize("num_bytes", [1_000, 65_537, 131_073, 300_000, 2_000_000])
async def test_a_client_that_leaves_after_a_body_of_any_size_is_noticed(  # type: ignore[no-untyped-def]
    begin, resets: bool, is_chunked: bool, num_writes: int, num_bytes: int
) -> None:
    body = b'{"model":"m","prompt":"%s"}' % (b"h" * num_bytes)
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        assert peer.request.body == body
        await begin(peer)
        await peer.gone()
        gone.set()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
            client.writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: r\r\n{framing}\r\n\r\n".encode())
            pieces = in_pieces(body, -(-len(body) // num_writes))
            for piece in [*map(chunk, pieces), LAST_CHUNK] if is_chunked else pieces:
                client.writer.write(piece)
                await client.writer.drain()
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await worker.arrived.acquire()
            if begin is not nothing:
                await client.head()
            if resets:
                client.reset()
            client.close()
            async with asyncio.timeout(BOUND_S):
                await gone.wait()
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED]


async def test_fifty_abandoned_streams_and_then_a_normal_request() -> None:
    async def script(peer: Peer) -> None:
        if b"stream" in peer.request.body:
            await peer.send(SSE_HEAD)
            for _ in range(5):
                await peer.send(chunk(b"data: 1\n\n"))
            await peer.gone()
            done.release()
        else:
            await peer.send(response(b"{}"))

    done = asyncio.Semaphore(0)
    async with stub_worker(script) as worker, front_door(worker.url) as door:
        for _ in range(50):
            async with connect(door.port) as client:
                await client.send("POST", CHAT, body=STREAMING)
                await client.head()
                await client.chunk()
        async with asyncio.timeout(5):
            for _ in range(50):
                await done.acquire()
        assert (await ask(door)).status == 200
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED] * 50 + [OutcomeKind.COMPLETED]


async def test_a_client_that_leaves_within_its_body_reaches_no_worker() -> None:
    async with stub_worker(nothing) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", CHAT, [("Content-Length", "100")])
            client.writer.write(b"half")
            while not door.counters.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await door.settled()
    assert not worker.requests
    assert not door.brain.requests


async def test_a_client_that_stops_reading_stops_the_reading_from_its_worker() -> None:
    """The worker can send no more than the buffers on the way hold."""
    piece = chunk(b"x" * 65536)
    num_sent = 0

    async def script(peer: Peer) -> None:
        nonlocal num_sent
        await peer.send(SSE_HEAD)
        while True:
            await peer.send(piece)
            num_sent += 1

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send("POST", CHAT, body=STREAMING)
            seen = -1
            while seen != num_sent:
                seen = num_sent
                await asyncio.sleep(0.1)
            assert 0 < num_sent < 1000
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED]


async def test_three_hundred_streams_half_of_them_abandoned() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    async def open_stream(clients: list[WireClient], port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = WireClient(reader, writer)
        await client.send("POST", CHAT, body=STREAMING)
        await client.head()
        assert await client.chunk() == b"data: 1\n\n"
        clients.append(client)

    clients: list[WireClient] = []
    async with stub_worker(script) as worker, front_door(worker.url) as door:
        await asyncio.gather(*(open_stream(clients, door.port) for _ in range(300)))
        assert len(door.brain.open) == 300
        for client in clients[:150]:
            client.close()
        while len(door.brain.open) > 150:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        release.set()
        for client in clients[150:]:
            assert await client.chunk() == b"data: 2\n\n"
            assert await client.chunk() == b""
            client.close()
        assert (await ask(door)).is_whole
        await door.settled()
    assert door.brain.kinds.count(OutcomeKind.COMPLETED) == 151
    assert door.brain.kinds.count(OutcomeKind.CLIENT_CLOSED) == 150


class StubConnection:
    """As the server shows it."""

    def __init__(self, *, has_left: bool = False) -> None:
        self.has_left = has_left
        self.is_surplus = False
        self.on_leave: Callable[[], None] | None = None
        self.refused_as: ConnectionEnd | None = None
        self.running: FrontDoorCycle | None = None

    def leave(self) -> None:
        """The client closes it."""
        self.has_left = True
        if self.on_leave is not None:
            self.on_leave()


async def test_the_watch_turns_leaving_into_its_own_error() -> None:
    connection = StubConnection()
    asyncio.get_running_loop().call_soon(connection.leave)
    with pytest.raises(ClientClosedError), DisconnectWatch(connection):
        await asyncio.Event().wait()
    assert connection.on_leave is None


async def test_a_client_that_has_left_before_is_noticed() -> None:
    with pytest.raises(ClientClosedError), DisconnectWatch(StubConnection(has_left=True)):
        await asyncio.Event().wait()


async def test_a_foreign_cancellation_stays_one() -> None:
    async def work() -> None:
        with DisconnectWatch(StubConnection()):
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_that_ends_first_is_left_alone() -> None:
    connection = StubConnection()
    with DisconnectWatch(connection):
        await asyncio.sleep(0)
    connection.leave()
    await asyncio.sleep(0)
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()
