"""Connections to a port: bounds on bytes, time and number, pipelining, and what is refused as ambiguous."""

import asyncio
import contextlib
import json
import logging

import pytest

from router.connections import (
    MAX_HEAD_BYTES,
    MAX_HELD_BYTES,
    MAX_PIPELINED,
    NUM_SURPLUS,
    ConnectionEnd,
    ConnectionLimits,
)
from scoring import OutcomeKind
from tests.router.front_door import FrontDoor, WireAnswer, connect, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    answering,
    chunk,
    response,
    stub_worker,
)

OK = answering(response(b"{}"))
GET = b"GET /x HTTP/1.1\r\nHost: r\r\n\r\n"
BOUND_S = 1.0
BRIEF = ConnectionLimits(head_s=0.2, body_s=0.2, read_s=0.2, keep_alive_s=5)


async def echo_target(peer: Peer) -> None:
    await peer.send(response(f"{peer.request.target} ".encode() + peer.request.body))


async def refused(door: FrontDoor, data: bytes) -> WireAnswer:
    """The answer to these bytes, after which the connection has ended."""
    async with connect(door.port) as client:
        client.writer.write(data)
        answer = await client.answer()
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""
    return answer


def code(answer: WireAnswer) -> object:
    """The error's code."""
    return json.loads(answer.body)["error"]["code"]


HEADS = {
    "one long value": b"GET /x HTTP/1.1\r\nx: %s\r\n\r\n" % (b"a" * MAX_HEAD_BYTES),
    "a long target": b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * MAX_HEAD_BYTES),
    "many fields": b"GET /x HTTP/1.1\r\n%s\r\n" % (b"x: a\r\n" * (MAX_HEAD_BYTES // 5)),
    "no end": b"GET /x HTTP/1.1\r\nx: " + b"a" * (8 * MAX_HEAD_BYTES),
    "a name without end": b"GET /x HTTP/1.1\r\n" + b"a" * (2 * MAX_HEAD_BYTES),
}


@pytest.mark.parametrize("data", HEADS.values(), ids=HEADS.keys())
async def test_a_head_beyond_the_bound_gets_431(data: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        answer = await refused(door, data)
        assert door.guard.ended == {ConnectionEnd.HEAD_TOO_LARGE: 1}
    assert (answer.status, code(answer)) == (431, "head_too_large")
    assert answer.values("connection") == ["close"]
    assert not worker.requests


async def test_a_head_within_the_bound_passes() -> None:
    data = b"GET /x HTTP/1.1\r\nConnection: close\r\nx: %s\r\n\r\n" % (b"a" * 60_000)
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        assert (await refused(door, data)).status == 200
    assert len(worker.requests) == 1


async def test_a_body_in_the_same_read_is_no_part_of_the_head() -> None:
    body = b"b" * 200_000
    data = b"PUT /x HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
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
    head = b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        assert (await refused(door, head + data)).status == 431
        await door.settled()
    assert not worker.requests


async def test_trailers_are_dropped() -> None:
    data = b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-late: 1\r\n\r\n"
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        client.writer.write(data)
        assert (await client.answer()).body == b"/x a"
    assert worker.requests[0].values("x-late") == []


@pytest.mark.parametrize("data", [b"G", b"GET /x HTTP/1.1\r\nx: ", b"\r\n\r\n"])
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


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n"
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
            head = b"PUT /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (pieces * 4096)
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


@pytest.mark.parametrize("num_pipelined", [1, 3, MAX_PIPELINED])
@pytest.mark.parametrize("in_one_write", [True, False])
async def test_pipelined_requests_are_answered_in_order(
    num_pipelined: int, in_one_write: bool
) -> None:
    requests = [
        b"PUT /%d HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi" % number
        for number in range(num_pipelined + 1)
    ]
    async with stub_worker(echo_target) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for data in [b"".join(requests)] if in_one_write else requests:
                client.writer.write(data)
                await asyncio.sleep(0)
            for number in range(num_pipelined + 1):
                assert (await client.answer()).body == b"/%d hi" % number
        await door.settled()
        assert not door.guard.ended


PIPELINED = {
    "whole": GET,
    "half a head": GET[:20],
    "half a body": b"PUT /x HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"a" * 100_000,
    "garbage": b"\x00\x01\x02",
    "many": GET * (MAX_PIPELINED + 5),
    "too much": b"PUT /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n" + b"a" * 4 * MAX_HELD_BYTES,
}


@pytest.mark.parametrize("in_one_write", [True, False])
@pytest.mark.parametrize("more", PIPELINED.values(), ids=PIPELINED.keys())
async def test_leaving_is_noticed_whatever_is_pipelined(more: bytes, in_one_write: bool) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.gone()
        gone.set()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            first = POST + b"Content-Length: 2\r\n\r\n{}"
            client.writer.write(first + more if in_one_write else first)
            await worker.arrived.acquire()
            if not in_one_write:
                client.writer.write(more)
                await client.writer.drain()
                await asyncio.sleep(0.05)
            client.close()
            async with asyncio.timeout(BOUND_S):
                await gone.wait()
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED]
    assert len(worker.requests) == 1


@pytest.mark.parametrize("in_one_write", [True, False])
@pytest.mark.parametrize("name", ["garbage", "too much"])
async def test_what_cannot_follow_does_not_disturb_the_answer_before_it(
    name: str, in_one_write: bool
) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    more = PIPELINED[name]
    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            first = POST + b"Content-Length: 2\r\n\r\n{}"
            client.writer.write(first + more if in_one_write else first)
            await worker.arrived.acquire()
            if not in_one_write:
                client.writer.write(more)
                await client.writer.drain()
            release.set()
            answer = await client.answer()
            rest = b""
            with contextlib.suppress(ConnectionResetError):
                rest = await client.reader.read()
        await door.settled()
    assert answer.body == b"data: 1\n\ndata: 2\n\n"
    assert rest.count(b"HTTP/1.1 200") == len(worker.requests) - 1


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


@pytest.mark.parametrize(
    "line",
    [
        b"OPTIONS * HTTP/1.1",
        b"CONNECT evil.com:443 HTTP/1.1",
        b"GET @evil.com/ HTTP/1.1",
        b"GET evil.com/ HTTP/1.1",
        b"GET /\xe9 HTTP/1.1",
        b"GET /x HTTP/2.0",
        b"GET /x HTTP/0.9",
        b"GET /x",
        b"PRI * HTTP/2.0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_request_for_a_path_is_refused(line: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        answer = await refused(door, line + b"\r\nHost: r\r\n\r\n")
    assert (answer.status, code(answer)) == (400, "malformed_request")
    assert not worker.requests


async def test_chunks_from_a_client_of_http_1_0_are_refused() -> None:
    async with front_door() as door:
        data = b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        assert (await refused(door, data)).status == 400


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://r/a?b=1", "/a?b=1"),
        (b"http://r", "/"),
        (b"//r/a", "//r/a"),
        (b"/a?b#c", "/a?b"),
        (b"/%2e%2E/a", "/%2e%2E/a"),
    ],
)
async def test_only_path_and_query_of_a_target_go_on(target: bytes, path: str) -> None:
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        client.writer.write(b"GET %s HTTP/1.1\r\nHost: r\r\n\r\n" % target)
        assert (await client.answer()).body.decode() == path + " "


@pytest.mark.parametrize("size", [0, 5, 100_000])
@pytest.mark.parametrize("in_one_write", [True, False])
async def test_the_offer_of_another_protocol_is_declined(size: int, in_one_write: bool) -> None:
    """Java's client offers h2c with each first request, bodies included."""
    head = (
        b"POST /x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
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
            health = await refused(door, b"GET /health HTTP/1.1\r\n\r\n")
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


async def test_requests_of_one_connection_after_an_early_refusal() -> None:
    """A refusal that comes before the body leaves the connection usable once the body has come."""
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        client.writer.write(b"POST /health HTTP/1.1\r\nContent-Length: 4\r\n\r\n")
        assert (await client.answer()).status == 405
        client.writer.write(b"body" + GET)
        assert (await client.answer()).status == 200


async def test_nothing_is_logged_about_what_clients_get_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with front_door(connections=BRIEF) as door:
        await refused(door, b"\x00\r\n\r\n")
        await refused(door, GET[:9])
        await refused(door, HEADS["one long value"])
    assert not [one for one in caplog.records if one.name != "asyncio"]
