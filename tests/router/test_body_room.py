"""How much memory bodies take together: what is counted, what is refused, and that nothing stays counted."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.body_room import SMALL_BYTES, BodyRoom, Held, NoRoomError
from router.data_app import DataLimits
from tests.router.front_door import WireAnswer, WireClient, ask, connect, front_door
from tests.router.stub_engine import answer_chat, stub_engine
from tests.router.stub_worker import Peer, answering, response, stub_worker
from tests.router.whole_router import whole_router

LARGE = b"x" * 200_000
ROOM = DataLimits(max_held_bytes=500_000)


@given(st.lists(st.lists(st.integers(0, 3 * SMALL_BYTES), min_size=1, max_size=4), max_size=8))
def test_room_is_what_large_bodies_hold(bodies: list[list[int]]) -> None:
    room, held = BodyRoom(5 * SMALL_BYTES), []
    for sizes in bodies:
        try:
            with Held(room) as one:
                for size in sorted(sizes):
                    one.grow(size)
        except NoRoomError:
            pass
        else:
            held.append(max(sizes))
        room.check()
        assert room.held_bytes == sum(size for size in held if size > SMALL_BYTES)
    for size in held:
        room.release(size)
    assert room.held_bytes == 0


async def send(client: WireClient, body: bytes, *, is_chunked: bool) -> None:
    if is_chunked:
        await client.send("PUT", "/x", [("Transfer-Encoding", "chunked")])
        client.writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    else:
        await client.send("PUT", "/x", body=body)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_large_body_too_many_is_refused_and_small_ones_are_served(is_chunked: bool) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        if len(peer.request.body) > 100:
            await release.wait()
        await peer.send(response(b"{}"))

    async with stub_worker(script) as worker, front_door(worker.url, limits=ROOM) as door:
        async with connect(door.port) as one, connect(door.port) as two:
            for client in (one, two):
                await send(client, LARGE, is_chunked=is_chunked)
                await worker.arrived.acquire()
            async with connect(door.port) as three:
                await send(three, LARGE, is_chunked=is_chunked)
                refused = await three.answer()
            assert (refused.status, json.loads(refused.body)["error"]["code"]) == (
                429,
                "overloaded",
            )
            assert refused.values("retry-after") == ["1"]
            assert (await ask(door, body=b'{"model":"m"}')).status == 200
            release.set()
            answers: list[WireAnswer] = [await one.answer(), await two.answer()]
            assert [answer.status for answer in answers] == [200, 200]
        for _ in range(5):
            assert (await ask(door, "PUT", "/x", body=LARGE)).status == 200
        await door.settled()
        assert door.counters.overloaded == {"max_held_bytes": 1}
        assert len(worker.requests) == 8


async def test_what_bodies_hold_and_which_bound_was_met_are_told() -> None:
    async def holds(peer: Peer) -> None:
        await release.wait()
        await answer_chat(peer)

    release = asyncio.Event()
    limits = {"max_body_bytes": 120_000, "max_held_bytes": 150_000, "max_in_flight": 2}
    async with stub_engine(script=holds) as engine, whole_router(engine, limits=limits) as router:
        first = asyncio.ensure_future(router.ask(user="u" * 100_000))
        found = await router.until(lambda now: now["held_body_bytes"] > 0)
        assert 100_000 < found["held_body_bytes"] < 101_000
        assert (await router.ask(user="u" * 100_000)).status_code == 429
        second = asyncio.ensure_future(router.ask())
        await router.until(lambda now: now["leases_open"] == 2)
        assert (await router.ask()).status_code == 429
        release.set()
        assert [(await one).status_code for one in (first, second)] == [200, 200]
        found = await router.settled()
    assert found["held_body_bytes"] == 0
    assert {key: found[key] for key in found if key.startswith("overloaded_total")} == {
        "overloaded_total{bound=max_in_flight}": 1,
        "overloaded_total{bound=max_held_bytes}": 1,
    }


async def test_bodies_that_never_come_whole_hold_nothing_for_long() -> None:
    """Clients that leave within a body, and bodies that turn out too long."""
    limits = DataLimits(max_body_bytes=300_000, max_held_bytes=400_000)
    ok = answering(response(b"{}"))
    async with stub_worker(ok) as worker, front_door(worker.url, limits=limits) as door:
        for _ in range(4):
            async with connect(door.port) as client:
                await client.send("PUT", "/x", [("Content-Length", "290000")])
                client.writer.write(LARGE)
                await client.writer.drain()
                while not door.counters.in_flight:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                client.reset()
            await door.settled()
            async with connect(door.port) as client:
                await client.send("PUT", "/x", [("Transfer-Encoding", "chunked")])
                client.writer.write(b"%x\r\n%s\r\n" % (len(LARGE), LARGE) * 2)
                assert (await client.answer()).status == 413
        assert (await ask(door, "PUT", "/x", body=LARGE)).status == 200
        await door.settled()
