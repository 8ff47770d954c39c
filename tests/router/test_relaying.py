"""What a client gets of an answer: bytes, lengths, chunks as they come, whatever its version of HTTP."""

import asyncio
import gzip
import json

import pytest

from scoring import OutcomeKind
from tests.router.front_door import ask, connect, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    answering,
    chunk,
    response,
    stub_worker,
)

CHAT = "/v1/chat/completions"


async def echo(peer: Peer) -> None:
    await peer.send(response(peer.request.body))


GZIPPED = gzip.compress(b'{"answer": "' + b"x" * 500 + b'"}')


@pytest.mark.parametrize(
    ("raw", "status", "body", "present", "absent"),
    [
        pytest.param(
            response(GZIPPED, headers=(("Content-Encoding", "gzip"),)),
            200, GZIPPED, [("content-encoding", "gzip")], ["transfer-encoding"],
            id="gzip with length",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            200, b"abcde", [("transfer-encoding", "chunked")], ["content-length"],
            id="chunked",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
            200, b"until the end", [("transfer-encoding", "chunked")], ["content-length"],
            id="close delimited",
        ),
        pytest.param(
            b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
            204, b"", [("x-a", "1")], ["content-length", "transfer-encoding"],
            id="no content",
        ),
        pytest.param(
            b"HTTP/1.1 304 Not Modified\r\nETag: e\r\nContent-Length: 5\r\n\r\n",
            304, b"", [("etag", "e")], ["content-length", "transfer-encoding"],
            id="not modified",
        ),
        pytest.param(
            response(b"{}", headers=(("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))),
            200, b"{}", [("set-cookie", "a=1"), ("set-cookie", "b=2")], [],
            id="two cookies",
        ),
        pytest.param(
            response(b"{}", headers=(("Connection", "close, X-Foo"), ("X-Foo", "1"), ("X-Bar", "2"))),
            200, b"{}", [("x-bar", "2")], ["x-foo"],
            id="named by connection",
        ),
        pytest.param(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + response(b"{}"),
            200, b"{}", [], ["link"],
            id="informational first",
        ),
        pytest.param(
            response(b"", status=307, headers=(("Location", "http://elsewhere/x"),)),
            307, b"", [("location", "http://elsewhere/x")], [],
            id="redirects are the client's",
        ),
        pytest.param(
            response(b'{"detail":"Not Found"}', status=404),
            404, b'{"detail":"Not Found"}', [("content-type", "application/json")], [],
            id="an error of the worker",
        ),
    ],
)  # fmt: skip
async def test_answers_pass_as_they_are(
    raw: bytes, status: int, body: bytes, present: list[tuple[str, str]], absent: list[str]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(raw)
        if b"close" in raw.split(b"\r\n\r\n", 1)[0]:
            peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, answer.body, answer.is_whole) == (status, body, True)
    names = [name.lower() for name, _ in answer.headers]
    assert [field for field in answer.headers if field in present] == present
    assert not set(absent) & set(names)
    assert names.count("content-length") + names.count("transfer-encoding") <= 1
    assert "server" not in names
    assert door.brain.kinds == [
        OutcomeKind.CLIENT_ERROR if status == 404 else OutcomeKind.COMPLETED
    ]


async def test_head_has_the_length_and_no_body() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-A: 1\r\n\r\n"
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for _ in range(2):
                await client.send("HEAD", "/file")
                answer = await client.answer(method="HEAD")
                assert answer.values("content-length") == ["1234"]
        await door.settled()
    assert worker.num_accepts == 2  # a body that came all the same would be the next answer


@pytest.mark.parametrize(
    "data", [response(b"abc"), SSE_HEAD + chunk(b"a") + chunk(b"bc") + LAST_CHUNK]
)
async def test_an_http_1_0_client_gets_no_chunks(data: bytes) -> None:
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(b"GET /x HTTP/1.0\r\n\r\n")
            answer = await client.head()
            assert await client.reader.read() == b"abc"
        await door.settled()
    assert answer.status == 200
    assert answer.values("transfer-encoding") == []
    assert answer.values("connection") == ["close"]


async def test_a_stream_reaches_an_http_1_0_client_as_it_comes() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(b"GET /x HTTP/1.0\r\n\r\n")
            await client.head()
            assert await client.reader.readexactly(9) == b"data: 1\n\n"
            release.set()
            assert await client.reader.read() == b"data: 2\n\n"
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.COMPLETED]


async def test_an_http_1_0_client_can_tell_a_broken_answer() -> None:
    """By a reset, after all that there was of it."""

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(b"GET /x HTTP/1.0\r\n\r\n")
            assert (await client.head()).status == 200
            body = await client.reader.readuntil(b"}}\n\n")
            with pytest.raises(ConnectionResetError):
                await client.reader.read()
        await door.settled()
    assert body.startswith(b'data: 1\n\ndata: {"error":{')
    assert door.counters.broken_streams == 1
    assert door.brain.kinds == [OutcomeKind.BROKEN_OFF]


async def test_workers_need_not_be_named() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url, names_worker=False) as door:
        answer = await ask(door)
    assert answer.values("x-kvroute-worker") == answer.values("x-kvroute-dp-rank") == []
    assert answer.values("x-request-id")


async def test_upstream_connections_are_reused() -> None:
    num_requests = 40
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for _ in range(num_requests):
                await client.send("POST", CHAT, body=b'{"model":"m"}')
                assert (await client.answer()).status == 200
        await door.settled()
    assert len(worker.requests) == num_requests
    assert worker.num_accepts == 1


async def test_chunked_answers_leave_the_connection_reusable() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        for _ in range(5):
            assert (await ask(door)).body == b"data: 1\n\n"
    assert worker.num_accepts == 1


async def test_each_chunk_reaches_the_client_before_the_next_is_sent() -> None:
    """In lockstep: the worker sends a chunk only once the client has the one before."""
    received = asyncio.Semaphore(0)
    events = [b"data: %d\n\n" % number for number in range(20)]

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for event in events:
            await peer.send(chunk(event))
            await received.acquire()
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", CHAT, body=b'{"model":"m","stream":true}')
            await client.head()
            for number, event in enumerate(events):
                assert await client.chunk() == event
                assert len(door.brain.first_bytes) == 1, number
                received.release()
            assert await client.chunk() == b""
        await door.settled()
    assert list(door.brain.first_bytes.values()) == [1]


async def test_a_stream_in_single_bytes_stays_the_same() -> None:
    text = "data: 안녕 🙂\r\n\r\n: comment\n\ndata: " + "x" * 2000 + "\n\ndata: [DONE]\n\n"

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for byte in text.encode():
            await peer.send(chunk(bytes([byte])))
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door)
    assert answer.body == text.encode()


async def test_a_large_event_and_a_large_body_pass() -> None:
    event = b"data: " + b"y" * 300_000 + b"\n\n"
    data = SSE_HEAD + chunk(event) + LAST_CHUNK
    body = json.dumps({"model": "m", "image": "z" * (9 * 1024 * 1024)}).encode()
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        answer = await ask(door, body=body)
    assert answer.body == event
    assert worker.requests[0].body == body


@pytest.mark.parametrize("names_worker", [True, False])
async def test_a_router_behind_names_nobody(*, names_worker: bool) -> None:
    inner = (("X-KVRoute-Worker", "inner"), ("x-kvroute-dp-rank", "7"), ("x-request-id", "z"))
    async with (
        stub_worker(answering(response(b"{}", headers=inner))) as worker,
        front_door(worker.url, names_worker=names_worker) as door,
    ):
        answer = await ask(door)
    assert answer.values("x-kvroute-worker") == (["w0"] if names_worker else [])
    assert answer.values("x-kvroute-dp-rank") == (["0"] if names_worker else [])
    assert len(answer.values("x-request-id")) == 1
