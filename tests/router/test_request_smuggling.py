"""What two parsers may read differently reaches no worker; what is odd, but one request, reaches it as one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.connections import ConnectionEnd
from router.data_app import DataLimits
from tests.router.front_door import FrontDoor, WireAnswer, WireClient, connect, front_door
from tests.router.request_corpus import HIDDEN, PASSING, REFUSED, Passing
from tests.router.strict_worker import StrictWorker, strict_worker
from tests.router.wire import code

AFTER = b"GET /after HTTP/1.1\r\nHost: r\r\n\r\n"
SIZES = [1, 1 << 20]  # of what is written at once


@asynccontextmanager
async def door_and_worker() -> AsyncIterator[tuple[FrontDoor, StrictWorker]]:
    async with strict_worker() as worker, front_door(worker.url) as door:
        yield door, worker
        await door.settled()
        assert worker.faults == []


async def written(client: WireClient, data: bytes, size: int) -> None:
    """The bytes, in pieces that come one by one."""
    for at in range(0, len(data), size):
        client.writer.write(data[at : at + size])
        await asyncio.sleep(0)


async def ended(client: WireClient) -> bytes:
    """What comes until the connection ends."""
    async with asyncio.timeout(5):
        return await client.reader.read()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
async def test_what_can_be_read_in_two_ways_is_refused(raw: bytes, size: int) -> None:
    async with door_and_worker() as (door, worker):
        async with connect(door.port) as client:
            await written(client, raw, size)
            answer = await client.answer()
            assert (answer.status, code(answer)) == (400, "malformed_request")
            assert answer.values("connection") == ["close"]
            assert await ended(client) == b""
        assert door.guard.ended == {ConnectionEnd.MALFORMED: 1}
        assert worker.requests == []


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
async def test_nor_does_it_harm_the_request_before_it(raw: bytes) -> None:
    async with door_and_worker() as (door, worker):
        async with connect(door.port) as client:
            await written(client, AFTER.replace(b"/after", b"/before") + raw, 1 << 20)
            assert (await client.answer()).body == b"/before "
            rest = await ended(client)
            assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")
        assert worker.requests == [("GET", "/before", b"")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("passing", PASSING.values(), ids=PASSING.keys())
async def test_what_is_one_request_is_one_and_leaves_the_connection_in_step(
    passing: Passing, size: int
) -> None:
    async with door_and_worker() as (door, worker):
        async with connect(door.port) as client:
            await written(client, passing.raw + AFTER, size)
            answers: list[WireAnswer] = [await client.answer(), await client.answer()]
        assert [answer.body for answer in answers] == [
            passing.target.encode() + b" " + passing.body,
            b"/after ",
        ]
        seen = [(target, body) for _, target, body in worker.requests]
        assert seen == [(passing.target, passing.body), ("/after", b"")]


EXPECTING = b"PUT /x HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\n"
WAITING = {
    "the body without waiting": (EXPECTING + b"Content-Length: 2\r\n\r\n", b"hi"),
    "chunks without waiting": (
        EXPECTING + b"Transfer-Encoding: chunked\r\n\r\n",
        b"2\r\nhi\r\n0\r\n\r\n",
    ),
    "asked for twice": (EXPECTING + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"hi"),
    "in other letters": (EXPECTING.upper().replace(b"/X", b"/x") + b"CONTENT-LENGTH: 2\r\n\r\n", b"hi"),
}  # fmt: skip


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(("head", "body"), WAITING.values(), ids=WAITING.keys())
async def test_a_client_that_waits_for_100_gets_it_once_and_stays_in_step(
    head: bytes, body: bytes, waits: bool
) -> None:
    async with door_and_worker() as (door, worker):
        async with connect(door.port) as client:
            client.writer.write(head if waits else head + body + AFTER)
            assert (await client.head()).status == 100
            if waits:
                client.writer.write(body + AFTER)
            assert (await client.answer()).body == b"/x hi"
            assert (await client.answer()).body == b"/after "
        assert [target for _, target, _ in worker.requests] == ["/x", "/after"]


@pytest.mark.parametrize("target", [b"/health", b"/v1/models"])
async def test_a_body_that_was_waited_with_is_no_request_once_it_was_refused(target: bytes) -> None:
    """The answer came in place of 100; what follows is the body nevertheless, for its length was said."""
    head = EXPECTING.replace(b"/x", target) + _length(len(HIDDEN))
    async with door_and_worker() as (door, worker):
        async with connect(door.port) as client:
            client.writer.write(head)
            assert (await client.answer()).status == 405
            client.writer.write(HIDDEN + AFTER)
            assert (await client.answer()).body == b"/after "
        assert [target for _, target, _ in worker.requests] == ["/after"]


async def test_a_body_that_is_refused_for_its_length_is_no_request() -> None:
    limits = DataLimits(max_body_bytes=8)
    async with strict_worker() as worker, front_door(worker.url, limits=limits) as door:
        async with connect(door.port) as client:
            client.writer.write(EXPECTING + _length(len(HIDDEN)) + HIDDEN + AFTER)
            answer = await client.answer()
            assert (answer.status, answer.values("connection")) == (413, ["close"])
            assert await ended(client) == b""
        await door.settled()
        assert worker.requests == []


@pytest.mark.parametrize("num_bytes", [1, 40, 100])
async def test_nothing_of_a_request_that_is_cut_off_reaches_a_worker(num_bytes: int) -> None:
    raw = b"PUT /x HTTP/1.1\r\nHost: r\r\n" + _length(200) + b"x" * 100
    async with door_and_worker() as (door, worker):
        async with connect(door.port) as client:
            client.writer.write(raw[:num_bytes])
            await client.writer.drain()
        while door.guard.num_open:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert worker.requests == []


def _length(num_bytes: int) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % num_bytes
