"""Connections to a port: what is refused as ambiguous, bounds on their number, and clients that leave."""

import asyncio
import logging

import pytest

from router.connections import NUM_SURPLUS, ConnectionEnd, ConnectionLimits
from scoring import OutcomeKind
from tests.router.front_door import connect, front_door
from tests.router.stub_worker import Peer, stub_worker
from tests.router.wire import BOUND_S, BRIEF, GET, HEADS, OK, POST, code, echo_target, refused

AMBIGUOUS = {
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "the same length twice": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"Content-Length: +5\r\n\r\nhello",
    "a huge length": b"Content-Length: 99999999999999999999\r\n\r\nhello",
    "an empty length": b"Content-Length: \r\n\r\n",
    "gzip, chunked": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, gzip": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "identity": b"Transfer-Encoding: identity\r\n\r\n",
    "identity and chunked": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "xchunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space before colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "folded": b"X: a\r\n b\r\n\r\n",
    "bare CR": b"X: a\rContent-Length: 5\r\n\r\nhello",
    "bare LF": b"X: a\nContent-Length: 5\n\nhello",
    "NUL": b"X: a\x00b\r\n\r\n",
    "hexadecimal chunk prefix": b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "chunk size overflow": b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na\r\n0\r\n\r\n",
    "chunk longer than said": b"Transfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n",
}


@pytest.mark.parametrize("fields", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_ambiguous_framing_is_refused(fields: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        answer = await refused(door, b"POST /x HTTP/1.1\r\nHost: r\r\n" + fields)
        await door.settled()
        assert door.guard.ended == {ConnectionEnd.MALFORMED: 1}
    assert (answer.status, code(answer)) == (400, "malformed_request")
    assert not worker.requests


@pytest.mark.parametrize("size", [0, 5, 100_000])
@pytest.mark.parametrize("in_one_write", [True, False])
async def test_the_offer_of_another_protocol_is_declined(size: int, in_one_write: bool) -> None:
    """Java's client offers h2c with each first request, bodies included."""
    head = (
        b"POST /x HTTP/1.1\r\nHost: r\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAEAAEAA\r\nContent-Length: %d\r\n\r\n" % size
    )
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        for _ in range(2):
            for data in [head + b"b" * size] if in_one_write else [head, b"b" * size]:
                client.writer.write(data)
                await asyncio.sleep(0.01)
            assert (await client.answer()).body == b"/x " + b"b" * size
    assert worker.requests[0].values("upgrade") == []


async def test_beyond_the_bound_on_connections_own_paths_are_served_and_the_rest_refused() -> None:
    limits = ConnectionLimits(max_connections=2)
    async with stub_worker(OK) as worker, front_door(worker.url, connections=limits) as door:
        async with connect(door.port) as first, connect(door.port) as second:
            for client in (first, second):
                client.writer.write(GET)
                assert (await client.answer()).status == 200
            health = await refused(door, b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
            assert (health.status, health.values("connection")) == (200, ["close"])
            for body in (b"{}", b"x" * 100_000):
                post = POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
                busy = await refused(door, post)
                assert (busy.status, code(busy)) == (503, "too_many_connections")
                assert busy.values("retry-after") == ["1"]
            first.writer.write(GET)
            assert (await first.answer()).status == 200
        await door.settled()
    assert len(worker.requests) == 3


async def test_far_beyond_the_bound_a_connection_is_refused_unasked() -> None:
    limits = ConnectionLimits(max_connections=1)
    async with front_door(connections=limits) as door:
        others = [
            await asyncio.open_connection("127.0.0.1", door.port) for _ in range(1 + NUM_SURPLUS)
        ]
        async with connect(door.port) as client:
            answer = await client.answer()
            assert await client.reader.read() == b""
        assert (answer.status, code(answer)) == (503, "too_many_connections")
        assert door.guard.ended == {ConnectionEnd.TOO_MANY: 1}
        for _, writer in others:
            writer.close()
        async with asyncio.timeout(5):
            while door.guard.num_open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await refused(door, b"GET /health HTTP/1.0\r\n\r\n")).status == 200


@pytest.mark.parametrize("size", [60_000, 70_000, 3_000_000])
async def test_a_body_that_nobody_reads_is_passed_over(size: int) -> None:
    """Paths that end here are answered before the body is whole: what is left of it holds nobody up."""
    post = b"POST /health HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % size
    async with front_door() as door, asyncio.timeout(BOUND_S):
        async with connect(door.port) as client:
            for _ in range(2):
                client.writer.write(post + b"b" * size)
                assert (await client.answer()).status == 405
            client.writer.write(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
            assert (await client.answer()).status == 200
            client.writer.write(post + b"b" * (size - 1))
            assert (await client.answer()).status == 405
        while door.guard.num_open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_client_that_is_half_closed_has_left() -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(GET)
            await worker.arrived.acquire()
            client.writer.write_eof()
            async with asyncio.timeout(BOUND_S):
                await client.reader.read()
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED]


async def test_nothing_is_logged_about_what_clients_get_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with front_door(connections=BRIEF) as door:
        await refused(door, b"\x00\r\n\r\n")
        await refused(door, GET[:9])
        await refused(door, HEADS["one long value"])
    assert not [one for one in caplog.records if one.name != "asyncio"]
