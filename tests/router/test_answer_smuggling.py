"""What a worker answers reaches the client that asked as one answer, or not at all, and nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.upstream_connection import MAX_HEAD_BYTES
from scoring import OutcomeKind
from tests.router.front_door import FrontDoor, ask, connect, front_door
from tests.router.stub_worker import Peer, StubWorker, answering, response, stub_worker
from tests.router.upstream_cases import BAD, CHUNKED, HEAD, OK
from tests.router.wire import code

EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
BOUND_S = 5.0


@asynccontextmanager
async def bad_once(data: bytes) -> AsyncIterator[tuple[FrontDoor, StubWorker]]:
    """A worker that answers ``/bad`` so and closes, and all else as it should; its requests and leases are over at the end."""

    async def script(peer: Peer) -> None:
        if peer.request.target == "/bad":
            await peer.send(data)
            peer.close()
        else:
            await peer.send(response(b"good"))

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        yield door, worker
        await door.settled()


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
async def test_what_is_no_answer_is_not_passed_on(data: bytes) -> None:
    """Where its head was one the answer breaks off; else the client is told, and goes on with its connection."""
    async with bad_once(data) as (door, _):
        async with connect(door.port) as client:
            await client.send("PUT", "/bad", body=b"{}")
            answer = await client.answer()
            if answer.status == 200:
                assert not answer.is_whole
            else:
                assert (answer.status, code(answer)) == (502, "worker_broke_off")
                await client.send("GET", "/good")
                assert (await client.answer()).body == b"good"
        assert (await ask(door, "GET", "/good", body=None)).body == b"good"
    assert OutcomeKind.COMPLETED in door.brain.kinds
    assert door.brain.kinds[0] is not OutcomeKind.COMPLETED


BEHIND = {
    "another answer": OK + EVIL,
    "another answer to chunks": CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + EVIL,
    "another answer to chunks with trailers": CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n\r\n" + EVIL,
    "an interim answer": OK + b"HTTP/1.1 100 Continue\r\n\r\n",
    "a byte": OK + b"e",
    "line ends": OK + b"\r\n" * 8,
    "a chunk": OK + b"4\r\nevil\r\n0\r\n\r\n",
    "much": OK + b"e" * 1_000_000,
}


@pytest.mark.parametrize("data", BEHIND.values(), ids=BEHIND.keys())
async def test_what_comes_behind_an_answer_is_nobodys(data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(data if peer.request.target == "/bad" else response(b"good"))

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for _ in range(3):
                await client.send("GET", "/bad")
                assert (await client.answer()).body == b"hello"
                await client.send("GET", "/good")
                assert (await client.answer()).body == b"good"
        await door.settled()
        assert not door.counters.broken_streams


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("status", [204, 304])
async def test_a_body_where_none_belongs_is_nobodys(method: str, status: int) -> None:
    data = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(EVIL), EVIL)
    async with bad_once(data) as (door, _), connect(door.port) as client:
        for _ in range(3):
            await client.send(method, "/bad")
            assert (await client.answer(method=method)).status == status
            await client.send("GET", "/good")
            assert (await client.answer()).body == b"good"


FLOODS = {
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "fields": (HEAD, b"X: y\r\n"),
    "one field": (HEAD + b"X: ", b"y" * 1024),
    "a reason": (b"HTTP/1.1 200 ", b"y" * 1024),
    "line ends": (b"", b"\r\n"),
    "an extension": (CHUNKED + b"1;", b"y" * 1024),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
}


@pytest.mark.parametrize(("begin", "more"), FLOODS.values(), ids=FLOODS.keys())
async def test_an_answer_without_an_end_of_its_head_is_given_up(begin: bytes, more: bytes) -> None:
    """After no more than its bound and what the sockets hold."""
    sent = 0
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.send(begin)
        piece = more * (65536 // len(more))
        try:
            while True:
                await peer.send(piece)
                sent += len(piece)
        finally:
            gone.set()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with asyncio.timeout(BOUND_S):
            answer = await ask(door, "PUT", "/x", body=b"{}")
            await gone.wait()
        assert answer.status == 502 or not answer.is_whole
        await door.settled()
    assert door.brain.kinds in ([OutcomeKind.WORKER_ERROR], [OutcomeKind.BROKEN_OFF])
    assert sent < MAX_HEAD_BYTES + 8 * 1024 * 1024


FIELDS = {
    "a line end that is written": (("X-A", "a%0d%0aX-B: b"),),
    "names of ours": (
        ("X-Request-Id", "evil"),
        ("X-Kvroute-Worker", "evil"),
        ("X-Kvroute-Dp-Rank", "9"),
        ("X-Kvroute-Score", "evil"),
    ),
    "fields of the hop": (
        ("Connection", "close, X-Secret, Content-Type"),
        ("X-Secret", "evil"),
        ("Keep-Alive", "evil"),
        ("Proxy-Authenticate", "evil"),
        ("Upgrade", "evil"),
    ),
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
async def test_what_a_worker_says_in_its_head_stays_what_it_says(
    fields: tuple[tuple[str, str], ...],
) -> None:
    data = response(b"{}", headers=fields)
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        answer = await ask(door)
    names = [name for name, _ in answer.headers]
    assert "X-B" not in names
    assert "evil" not in str(answer.headers)
    assert answer.values("x-kvroute-worker") == ["w0"]
    assert len(answer.values("x-request-id")) == 1
