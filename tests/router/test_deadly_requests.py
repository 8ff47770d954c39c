"""A request that workers die of: whom it reaches, and how often."""

import asyncio
import json

import pytest

from router.counters import RetryReason
from router.upstream_connection import STALE_S
from scoring import OutcomeKind
from tests.router.front_door import ask, front_door
from tests.router.stub_worker import Peer, Script, StubWorker, answering, response, stub_worker

OK = answering(response(b"{}"))
DEADLY = b'{"model":"m","messages":["deadly"]}'


def dying(after_s: float = 0.0) -> Script:
    """A worker that serves until the deadly request comes, and breaks its connection so much later."""

    async def script(peer: Peer) -> None:
        if peer.request.body != DEADLY:
            await peer.send(response(b"{}"))
            return
        await asyncio.sleep(after_s)
        peer.reset()

    return script


def num_deadly(worker: StubWorker) -> int:
    """How often the request reached it."""
    return sum(request.body == DEADLY for request in worker.requests)


@pytest.mark.parametrize("after_s", [0.0, STALE_S + 0.1])
async def test_it_reaches_two_workers_and_each_of_them_once(after_s: float) -> None:
    """Also where it breaks a kept connection at once, which may have been closed while it idled."""
    async with (
        stub_worker(dying(after_s)) as one,
        stub_worker(dying(after_s)) as two,
        stub_worker(OK) as three,
        front_door(one.url, two.url, three.url) as door,
    ):
        await ask(door)
        answer = await ask(door, body=DEADLY)
        await door.settled()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (502, "worker_broke_off")
    assert [num_deadly(one), num_deadly(two), num_deadly(three)] == [1, 1, 0]
    first = OutcomeKind.BROKEN_OFF if after_s else OutcomeKind.STALE
    assert door.brain.kinds[1:] == [first, OutcomeKind.BROKEN_OFF]
    assert door.counters.retries == {RetryReason.RESET: 1}


@pytest.mark.parametrize("resets", [False, True])
async def test_alone_a_worker_gets_it_twice(resets: bool) -> None:
    async def script(peer: Peer) -> None:
        if peer.request.body != DEADLY:
            await peer.send(response(b"{}"))
        elif resets:
            peer.reset()
        else:
            peer.close()

    async with stub_worker(script) as one, front_door(one.url) as door:
        await ask(door)
        assert (await ask(door, body=DEADLY)).status == 502
        await door.settled()
    assert num_deadly(one) == 2
    assert door.counters.retries == {RetryReason.FRESH_CONNECTION: 1}


async def test_after_a_stale_connection_the_next_worker_is_asked_over_a_fresh_one() -> None:
    """Its own kept ones may have been closed as well."""

    async def script(peer: Peer) -> None:
        kept.append(peer.writer)
        if kept.count(peer.writer) > 1:
            peer.close()
        else:
            await peer.send(response(b"{}"))

    kept: list[asyncio.StreamWriter] = []
    async with (
        stub_worker(script) as one,
        stub_worker(script) as two,
        front_door(one.url, two.url) as door,
    ):
        both = [asyncio.ensure_future(ask(door)) for _ in range(2)]
        assert [(await one).status for one in both] == [200, 200]
        assert (await ask(door)).status == 200
        await door.settled()
    assert len(one.requests) + len(two.requests) == 4
    assert door.brain.kinds.count(OutcomeKind.STALE) == 1


async def test_a_worker_that_is_gone_after_it_has_died_of_it() -> None:
    """Its kept connection breaks at once, and it cannot be connected to."""
    listening = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal listening
        while listening:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            if await reader.readexactly(length) == DEADLY:
                listening = False
                server.close()
                writer.close()
            else:
                writer.write(response(b"{}"))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        stub_worker(dying()) as two,
        stub_worker(OK) as three,
        front_door(f"http://127.0.0.1:{port}", two.url, three.url) as door,
    ):
        await ask(door)
        answer = await ask(door, body=DEADLY)
        await door.settled()
    assert answer.status == 502
    assert [num_deadly(two), num_deadly(three)] == [1, 0]
    assert door.brain.kinds[1:] == [OutcomeKind.STALE, OutcomeKind.BROKEN_OFF]
