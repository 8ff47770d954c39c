"""Workers that stop answering while requests wait for a first byte."""

import asyncio
import json

import pytest

from protocol import WorkerId
from router.outages import Outages
from router.upstream import Fault, UpstreamError
from scoring import OutcomeKind
from tests.router.front_door import ask, connect, front_door
from tests.router.stub_worker import SSE_HEAD, Peer, answering, chunk, response, stub_worker

W0 = WorkerId("w0")
OK = answering(response(b'{"ok":true}'))


async def frozen(peer: Peer) -> None:
    await peer.gone()


async def forever(outages: Outages) -> None:
    with outages.wait_for(W0):
        await asyncio.Event().wait()


async def test_a_wait_ends_with_its_worker_alone() -> None:
    outages = Outages()
    waiting = asyncio.ensure_future(forever(outages))
    await asyncio.sleep(0)
    outages.declare(WorkerId("w1"))
    await asyncio.sleep(0)
    assert outages.num_waiting == 1
    outages.declare(W0)
    outages.declare(W0)
    with pytest.raises(UpstreamError) as error:
        await waiting
    assert error.value.fault is Fault.UNHEALTHY
    with outages.wait_for(W0):
        assert outages.num_waiting == 1
    outages.declare(W0)
    assert outages.num_waiting == 0


async def test_a_timeout_of_somebody_else_stays_one() -> None:
    with pytest.raises(TimeoutError), Outages().wait_for(W0):
        raise TimeoutError


async def test_what_waits_for_a_frozen_worker_goes_elsewhere() -> None:
    async with (
        stub_worker(frozen) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url) as door,
    ):
        asked = asyncio.ensure_future(ask(door))
        await bad.arrived.acquire()
        door.relay.outages.declare(WorkerId("w1"))
        await asyncio.sleep(0)
        assert not good.requests
        door.relay.outages.declare(W0)
        answer = await asked
        await door.settled()
    assert (answer.status, answer.values("x-kvroute-worker")) == (200, ["w1"])
    assert door.brain.kinds == [OutcomeKind.TIMED_OUT, OutcomeKind.COMPLETED]
    assert door.counters.retries == {"unhealthy": 1}


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/files"])
async def test_with_nobody_else_or_once_only_it_is_504(target: str) -> None:
    async with stub_worker(frozen) as bad, stub_worker(OK) as good:
        urls = [bad.url, good.url] if target == "/files" else [bad.url]
        async with front_door(*urls) as door:
            asked = asyncio.ensure_future(ask(door, target=target))
            await bad.arrived.acquire()
            door.relay.outages.declare(W0)
            answer = await asked
            await door.settled()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (504, "worker_timed_out")
    assert not good.requests


@pytest.mark.parametrize("begun", [b"", chunk(b'data: {"choices":[]}\n\n')])
async def test_a_stream_ends_if_it_has_said_nothing_yet(begun: bytes) -> None:
    """One that has said something goes on: it may be slow, and cannot be repeated."""
    end = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + begun)
        await end.wait()
        peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", "/v1/chat/completions", [], b"{}")
            await client.head()
            if begun:
                await client.chunk()
            door.relay.outages.declare(W0)
            if not begun:
                assert b"worker_timed_out" in await client.chunk()
            end.set()
        await door.settled()
    assert door.brain.kinds[0] is not OutcomeKind.COMPLETED


async def test_a_cancellation_by_somebody_else_stays_one() -> None:
    outages = Outages()
    waiting = asyncio.ensure_future(forever(outages))
    await asyncio.sleep(0)
    outages.declare(W0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert outages.num_waiting == 0
