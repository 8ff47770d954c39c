import asyncio
import socket
from functools import partial

import pytest
import uvloop

from benchmarks.chat_requests import CHAT_PATH, streams, wishing
from benchmarks.load_client import Connection, request_bytes, send_all
from benchmarks.paced_load import Latency, latency_of, send_paced
from benchmarks.stub_engine import StubEngine, Wish, announced_completion, completion


@pytest.mark.parametrize(
    ("waits_s", "latency"),
    [
        ([0.002], Latency(2.0, 2.0)),
        ([0.003, 0.001, 0.002], Latency(2.0, 3.0)),
        ([number / 1000 for number in range(1, 201)], Latency(100.0, 198.0)),
    ],
)
def test_percentiles_are_of_the_nearest_rank(waits_s: list[float], latency: Latency) -> None:
    assert latency_of(waits_s) == latency


REQUEST = request_bytes(CHAT_PATH, b"{}")


class Served:
    """A stub engine, and what it was asked."""

    def __init__(self, answer: bytes) -> None:
        self.connections: list[StubEngine] = []
        self._answer = answer

    def __call__(self) -> StubEngine:
        self.connections.append(StubEngine({}, self._answer))
        return self.connections[-1]

    async def send(self, num_requests: int) -> list[float]:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(self, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await send_paced(port, [REQUEST] * num_requests, 1_000.0)


def test_each_request_is_sent_once_over_connections_that_are_kept() -> None:
    served = Served(announced_completion(64))
    assert len(asyncio.run(served.send(20))) == 20
    assert 1 <= len(served.connections) <= 20


def test_an_answer_that_is_not_200_is_told() -> None:
    with pytest.raises(ExceptionGroup) as told:
        asyncio.run(Served(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").send(1))
    assert told.group_contains(RuntimeError, match="answered 503")


async def nodelay_of_a_connection() -> int:
    loop = asyncio.get_running_loop()
    options: list[int] = []

    class Watched(StubEngine):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted = transport.get_extra_info("socket")
            options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    serve = partial(Watched, {}, announced_completion(64))
    async with await loop.create_server(serve, "127.0.0.1", 0) as server:
        await send_all(server.sockets[0].getsockname()[1], [REQUEST], 1)
    return options[0]


def test_the_engine_waits_for_no_acknowledgement() -> None:
    assert asyncio.run(nodelay_of_a_connection())
    assert uvloop.run(nodelay_of_a_connection())


def test_the_engine_reports_what_the_request_says_in_whole_blocks() -> None:
    answer = completion(100, 50)
    assert b'"prompt_tokens": 100' in answer
    assert b'"cached_tokens": 48' in answer
    assert announced_completion(64) == completion(64, 48)


async def answers(requests: list[bytes], expected: list[bytes]) -> list[bytes]:
    loop = asyncio.get_running_loop()
    serve = partial(StubEngine, {}, announced_completion(64))
    async with await loop.create_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = []
        for request, answer in zip(requests, expected, strict=True):
            writer.write(request)
            found.append(await reader.readexactly(len(answer)))
        writer.close()
        await writer.wait_closed()
    return found


def test_the_engine_takes_the_usage_of_that_request_alone() -> None:
    requests = [request_bytes(CHAT_PATH, wishing(b'{"a": 1}', Wish(0, 100, 50))), REQUEST]
    expected = [completion(100, 50), announced_completion(64)]
    assert asyncio.run(answers(requests, expected)) == expected


@pytest.mark.parametrize("wish", [Wish(), Wish(300), Wish(0, 50_000, 49_000)])
def test_a_wish_is_found_wherever_the_field_stands(wish: Wish) -> None:
    for body in (b'{"a": "-", "user": "%s"}', b'{"user":"%s","messages":[]}'):
        assert Wish.found_in(body % str(wish).encode()) == wish
    assert Wish.found_in(b'{"user": "somebody"}') == Wish()


def test_an_answer_that_is_too_small_is_told() -> None:
    async def send() -> None:
        loop = asyncio.get_running_loop()
        serve = partial(StubEngine, {}, announced_completion(64))
        async with await loop.create_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await send_all(port, [REQUEST], 1, least_bytes=100)
            await send_all(port, [REQUEST], 1, least_bytes=10_000)

    with pytest.raises(ExceptionGroup) as told:
        asyncio.run(send())
    assert told.group_contains(RuntimeError, match="bytes")


def test_a_stream_has_as_many_events_as_were_wished() -> None:
    async def size_bytes(num_chunks: int) -> int:
        loop = asyncio.get_running_loop()
        serve = partial(StubEngine, {}, announced_completion(64))
        async with await loop.create_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            assert await connection.ask(streams(1, num_chunks)[0]) == 200
            connection.close()
        return connection.size_bytes

    one, three = (asyncio.run(size_bytes(count)) for count in (1, 3))
    assert three - one == 2 * (one - len(b"data: [DONE]\n\n"))
