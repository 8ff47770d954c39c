"""Bounds of a connection to a port: bytes of a head, and time for every part of an exchange."""

import asyncio

import pytest

from router.connections import MAX_HEAD_BYTES, ConnectionEnd, ConnectionLimits
from scoring import OutcomeKind
from tests.router.front_door import connect, front_door
from tests.router.stub_worker import SSE_HEAD, Peer, chunk, response, stub_worker
from tests.router.wire import BRIEF, GET, HEADS, OK, POST, code, echo_target, refused


@pytest.mark.parametrize("data", HEADS.values(), ids=HEADS.keys())
async def test_a_head_beyond_the_bound_gets_431(data: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        answer = await refused(door, data)
        assert door.guard.ended == {ConnectionEnd.HEAD_TOO_LARGE: 1}
    assert (answer.status, code(answer)) == (431, "head_too_large")
    assert answer.values("connection") == ["close"]
    assert not worker.requests


async def test_a_head_within_the_bound_passes() -> None:
    data = b"GET /x HTTP/1.1\r\nHost: r\r\nConnection: close\r\nx: %s\r\n\r\n" % (b"a" * 60_000)
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        assert (await refused(door, data)).status == 200
    assert len(worker.requests) == 1


async def test_a_body_in_the_same_read_is_no_part_of_the_head() -> None:
    body = b"b" * 200_000
    data = b"PUT /x HTTP/1.1\r\nHost: r\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    async with stub_worker(echo_target) as worker, front_door(worker.url) as door:
        assert (await refused(door, data)).body == b"/x " + body


TRAILERS = {
    "trailers": b"0\r\nx: " + b"a" * (16 * MAX_HEAD_BYTES),
    "chunk extensions": b"1;" + b"a" * (16 * MAX_HEAD_BYTES),
}


@pytest.mark.parametrize("data", TRAILERS.values(), ids=TRAILERS.keys())
async def test_framing_without_a_body_is_bounded_too(data: bytes) -> None:
    head = b"PUT /x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        assert (await refused(door, head + data)).status == 431
        await door.settled()
    assert not worker.requests


async def test_trailers_are_dropped() -> None:
    data = b"PUT /x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-late: 1\r\n\r\n"
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        client.writer.write(data)
        assert (await client.answer()).body == b"/x a"
    assert worker.requests[0].values("x-late") == []


@pytest.mark.parametrize("data", [b"G", b"GET /x HTTP/1.1\r\nHost: r\r\nx: ", b"\r\n\r\n"])
async def test_a_head_that_does_not_come_gets_408(data: bytes) -> None:
    async with front_door(connections=BRIEF) as door:
        answer = await refused(door, data)
        assert door.guard.ended == {ConnectionEnd.HEAD_TIMEOUT: 1}
    assert (answer.status, code(answer)) == (408, "request_timeout")


async def test_a_head_that_trickles_gets_408() -> None:
    async with front_door(connections=BRIEF) as door, connect(door.port) as client:
        client.writer.write(b"GET /")
        async with asyncio.timeout(5):
            while not door.guard.ended:
                client.writer.write(b"x")
                await asyncio.sleep(0.02)
        assert (await client.answer()).status == 408


async def test_a_silent_connection_is_closed_without_a_word() -> None:
    async with front_door(connections=BRIEF) as door, connect(door.port) as client:
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""
        assert not door.guard.ended


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    limits = ConnectionLimits(keep_alive_s=0.2)
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url, connections=limits) as door,
        connect(door.port) as client,
    ):
        for _ in range(2):
            client.writer.write(GET)
            assert (await client.answer()).status == 200
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""


async def test_a_second_head_has_a_time_of_its_own() -> None:
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url, connections=BRIEF) as door,
        connect(door.port) as client,
    ):
        client.writer.write(GET)
        assert (await client.answer()).status == 200
        client.writer.write(GET[:5])
        assert (await client.answer()).status == 408


SLOW_BODIES = {
    "length": POST + b"Content-Length: 10\r\n\r\n{",
    "chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "none yet": POST + b"Content-Length: 10\r\n\r\n",
}


@pytest.mark.parametrize("data", SLOW_BODIES.values(), ids=SLOW_BODIES.keys())
async def test_a_body_that_does_not_come_gets_408(data: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url, connections=BRIEF) as door:
        answer = await refused(door, data)
        await door.settled()
        assert door.guard.ended == {ConnectionEnd.BODY_TIMEOUT: 1}
    assert (answer.status, code(answer)) == (408, "request_timeout")
    assert list(door.counters.requests) == [("chat", "closed")]
    assert not worker.requests


async def test_a_body_that_trickles_gets_408_and_a_steady_one_passes() -> None:
    limits = ConnectionLimits(body_s=0.4)
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url, connections=limits) as door,
    ):
        async with connect(door.port) as steady, connect(door.port) as trickling:
            pieces = 12
            head = b"PUT /x HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % (pieces * 4096)
            steady.writer.write(head)
            trickling.writer.write(head)
            for _ in range(pieces):
                steady.writer.write(b"a" * 4096)
                trickling.writer.write(b"a")
                await asyncio.sleep(0.1)
            assert (await steady.answer()).body == b"/x " + b"a" * pieces * 4096
            assert (await trickling.answer()).status == 408
        await door.settled()


async def test_an_answer_may_take_longer_than_a_request() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await release.wait()
        await peer.send(response(b"{}"))

    async with (
        stub_worker(script) as worker,
        front_door(worker.url, connections=BRIEF) as door,
        connect(door.port) as client,
    ):
        client.writer.write(POST + b"Content-Length: 2\r\n\r\n{}")
        await worker.arrived.acquire()
        await asyncio.sleep(0.5)
        release.set()
        assert (await client.answer()).status == 200


async def test_a_client_that_reads_nothing_for_long_has_left() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        while True:
            await peer.send(chunk(b"x" * 65536))

    async with stub_worker(script) as worker, front_door(worker.url, connections=BRIEF) as door:
        async with connect(door.port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(GET)
            async with asyncio.timeout(5):
                while not door.brain.kinds:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await door.settled()
        assert door.guard.ended == {ConnectionEnd.READ_TIMEOUT: 1}
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED]
