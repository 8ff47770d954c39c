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


@pytest.mark.parametrize(("after_s", "num_first"), [(0.0, 2), (STALE_S + 0.1, 1)])
async def test_it_reaches_two_workers(after_s: float, num_first: int) -> None:
    """What breaks at once on a kept connection is sent to the same worker once more: it may have idled."""
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
    assert [num_deadly(one), num_deadly(two), num_deadly(three)] == [num_first, 1, 0]
    assert door.counters.retries[RetryReason.FRESH_CONNECTION] == num_first - 1


async def test_a_worker_that_is_gone_after_it_has_died_of_it() -> None:
    """Its kept connection breaks at once, and it cannot be connected to: it was not closed while idle."""
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
    assert door.brain.kinds[1:] == [OutcomeKind.CONNECT_FAILED, OutcomeKind.BROKEN_OFF]
