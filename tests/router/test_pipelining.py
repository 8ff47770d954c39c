"""Requests of one connection, one after the other: in order, bounded, none disturbed by another."""

import asyncio
import contextlib

import pytest

from router.connections import MAX_HELD_BYTES, MAX_PIPELINED
from scoring import OutcomeKind
from tests.router.front_door import connect, front_door
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk, stub_worker
from tests.router.wire import BOUND_S, GET, OK, POST, echo_target


@pytest.mark.parametrize("num_pipelined", [1, 3, MAX_PIPELINED])
@pytest.mark.parametrize("in_one_write", [True, False])
async def test_pipelined_requests_are_answered_in_order(
    num_pipelined: int, in_one_write: bool
) -> None:
    requests = [
        b"PUT /%d HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\nhi" % number
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
    "half a body": b"PUT /x HTTP/1.1\r\nHost: r\r\nContent-Length: 200000\r\n\r\n" + b"a" * 100_000,
    "garbage": b"\x00\x01\x02",
    "many": GET * (MAX_PIPELINED + 5),
    "too much": b"PUT /x HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n"
    + b"a" * 4 * MAX_HELD_BYTES,
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


async def test_requests_of_one_connection_after_an_early_refusal() -> None:
    """A refusal that comes before the body leaves the connection usable once the body has come."""
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        client.writer.write(b"POST /health HTTP/1.1\r\nHost: r\r\nContent-Length: 4\r\n\r\n")
        assert (await client.answer()).status == 405
        client.writer.write(b"body" + GET)
        assert (await client.answer()).status == 200
