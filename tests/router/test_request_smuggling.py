"""What two parsers may read differently reaches no worker; what is odd, but one request, reaches it as one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.connections import ConnectionEnd
from tests.router.front_door import FrontDoor, WireAnswer, WireClient, connect, front_door
from tests.router.request_corpus import PASSING, REFUSED, Passing
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
