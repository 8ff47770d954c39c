"""Fleets that fail as a whole: what they are sent is bounded, and what clients get is the workers' own answer."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from router.retry_budget import WINDOW_S
from tests.router.failing_workers import close_at_once, garbage, reset_at_once
from tests.router.stub_engine import answer_chat, stub_engine
from tests.router.stub_worker import Peer, Script, answering, response
from tests.router.whole_router import total, whole_router

NUM_REQUESTS = 50
FLOOR = 3
NEVER_OPENS = {"num_faults": 1_000}


@pytest.mark.parametrize(
    ("script", "status", "at_once"),
    [
        (answering(response(b"{}", status=500)), 500, False),
        (answering(response(b"{}", status=500)), 500, True),
        (answering(response(b"{}", status=503)), 503, False),
        (answering(response(b"{}", status=429)), 429, True),
        (close_at_once, 502, True),
        (reset_at_once, 502, False),
        (garbage, 502, False),
    ],
)
async def test_a_fleet_that_fails_is_not_sent_a_multiple_of_its_load(
    script: Script, status: int, at_once: bool
) -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(stub_engine(script=script)) for _ in range(3)]
        router = await stack.enter_async_context(
            whole_router(*engines, breaker=NEVER_OPENS, retries={"share": 0.2, "floor": FLOOR})
        )
        began_at = time.monotonic()
        if at_once:
            answers = await asyncio.gather(*(router.ask() for _ in range(NUM_REQUESTS)))
        else:
            answers = [await router.ask() for _ in range(NUM_REQUESTS)]
        metrics = await router.settled()
        num_windows = 1 + (int(time.monotonic()) - int(began_at)) // WINDOW_S
    num_sent = sum(engine.num_served for engine in engines)
    assert {answer.status_code for answer in answers} == {status}
    assert num_sent - NUM_REQUESTS in may_be_repeated(num_windows)
    assert total(metrics, "retries_total") == num_sent - NUM_REQUESTS
    assert total(metrics, "attempts_total") == num_sent
    if num_windows == 1:
        assert total(metrics, "retries_withheld_total") > 0
        assert metrics["retry_budget_left"] < 1


def may_be_repeated(num_windows: int) -> range:
    """How many attempts, over so many windows of the budget: what one allows and no less, or where the machine is slow the
    floor of each, and a share of the requests that began in it or in the one before."""
    share = NUM_REQUESTS // 5
    if num_windows == 1:
        return range(FLOOR + share, FLOOR + share + 1)
    return range(FLOOR, num_windows * FLOOR + 2 * share + 1)


async def test_without_a_budget_nothing_is_repeated() -> None:
    async with (
        stub_engine(script=reset_at_once) as one,
        stub_engine(script=reset_at_once) as two,
        whole_router(one, two, breaker=NEVER_OPENS, retries={"share": 0, "floor": 0}) as router,
    ):
        for _ in range(10):
            assert (await router.ask()).status_code == 502
        metrics = await router.settled()
        assert one.num_served + two.num_served == 10
        assert metrics["retries_withheld_total{reason=reset}"] == 10


async def test_what_waits_to_be_repeated_has_its_share_of_the_budget() -> None:
    """Nobody else may be repeated on the strength of it, and where its client leaves it is free again."""

    async def holds(peer: Peer) -> None:
        await release.wait()
        await answer_chat(peer)

    release = asyncio.Event()
    async with stub_engine(script=close_at_once) as bad, stub_engine(script=holds) as full:
        workers = [bad.url, {"url": full.url, "max_in_flight": 1}]
        budget = {"share": 0, "floor": 1}
        async with whole_router(
            bad, full, workers=workers, retries=budget, breaker=NEVER_OPENS
        ) as router:
            await router.control.patch(f"/workers/{bad.name}", json={"draining": True})
            first = asyncio.ensure_future(router.ask())
            await router.until(lambda found: found["leases_open"] == 1)
            await router.control.patch(f"/workers/{bad.name}", json={"draining": False})
            leaves = asyncio.ensure_future(router.ask())
            await router.until(lambda found: found["retry_budget_left"] == 0)
            assert [(await router.ask()).status_code for _ in range(3)] == [502] * 3
            leaves.cancel()
            await router.until(lambda found: found["retry_budget_left"] == 1)
            repeated = asyncio.ensure_future(router.ask())
            await router.until(lambda found: found["retry_budget_left"] == 0)
            release.set()
            assert ((await first).status_code, (await repeated).status_code) == (200, 200)
            metrics = await router.settled()
    assert metrics["retries_withheld_total{reason=reset}"] == 3
    assert total(metrics, "retries_total") == 1


async def test_what_one_dead_worker_orphans_is_saved_by_the_others() -> None:
    """Many requests wait for it when it dies: their share of those in flight, and the floor, is enough by default."""

    async def dies(peer: Peer) -> None:
        if len(waiting) < 60:
            waiting.append(peer)
            if len(waiting) == 60:
                for one in waiting:
                    one.reset()
            await peer.gone()
        else:
            await answer_chat(peer)

    waiting: list[Peer] = []
    async with (
        stub_engine(script=dies) as one,
        stub_engine() as two,
        whole_router(one, two, policy="round_robin") as router,
    ):
        answers = await asyncio.gather(*(router.ask() for _ in range(120)))
        metrics = await router.settled()
    assert {answer.status_code for answer in answers} == {200}
    assert metrics["retries_total{reason=reset}"] == 60
    assert not total(metrics, "retries_withheld_total")
