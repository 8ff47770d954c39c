"""What is booked and counted, exact after any mix of faults, resets and clients that leave, on every route."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random

import httpx
import pytest
import uvloop

from prompt import bundled_model_dir
from tests.router.chaos import Chance, Visit, anything
from tests.router.failing_workers import (
    close_after_headers,
    close_at_once,
    reset_within_length,
)
from tests.router.stub_engine import StubEngine, answer_chat, stub_engine, until
from tests.router.stub_worker import Peer, Script
from tests.router.whole_router import CHAT, Metrics, WholeRouter, total, whole_router

NEVER_OPENS = {"num_faults": 1_000}
ROUTES = (CHAT, "/v1/completions", "/generate", "/v1/embeddings", "/never/heard/of")


def in_flight(metrics: Metrics) -> list[int]:
    """Of each rank."""
    return [int(value) for key, value in metrics.items() if key.startswith("rank_in_flight")]


@pytest.mark.parametrize("path", ["/never/heard/of", CHAT])
async def test_requests_on_any_path_count_as_load_and_spread_alike(path: str) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await release.wait()
        await answer_chat(peer)

    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(stub_engine(script=script)) for _ in range(4)]
        router = await stack.enter_async_context(whole_router(*engines))
        asked = [asyncio.ensure_future(router.ask(path)) for _ in range(100)]
        await until(lambda: sum(served(engine, path) for engine in engines) == 100)
        assert in_flight(await router.metrics()) == [25] * 4
        release.set()
        assert {(await one).status_code for one in asked} == {200}
        assert in_flight(await router.settled()) == [0] * 4


def served(engine: StubEngine, path: str) -> int:
    """Requests for the path."""
    return sum(request.target == path for request in engine.worker.requests)


async def fails(router: WholeRouter, path: str, streams: bool) -> bool:
    """Does one request fail for its client, in whatever way?"""
    try:
        return (await router.ask(path, stream=streams)).status_code >= 500
    except httpx.TransportError:
        return True


async def test_two_hundred_failures_of_four_kinds_leave_nothing() -> None:
    """An end before the head, after it, a reset within the body, refused connections; on every kind of route."""
    scripts: list[Script] = [close_at_once, close_after_headers, reset_within_length]
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(stub_engine(script=one)) for one in scripts]
        goes = await stack.enter_async_context(AsyncExitStack())
        engines.append(await goes.enter_async_context(stub_engine()))
        patient = {"interval_s": 3_600, "failure_threshold": 100}
        router = await stack.enter_async_context(
            whole_router(*engines, breaker=NEVER_OPENS, limits={"max_attempts": 1}, health=patient)
        )
        await goes.aclose()
        for engine in engines:
            for other in engines:
                draining = {"draining": other is not engine}
                await router.control.patch(f"/workers/{other.name}", json=draining)
            asked = [fails(router, ROUTES[one % len(ROUTES)], one % 2 == 0) for one in range(50)]
            sampled = asyncio.ensure_future(router.metrics())
            assert all(await asyncio.gather(*asked)), engine.name
            assert min(in_flight(await sampled)) >= 0
            assert in_flight(await router.settled()) == [0] * 4
        metrics = await router.settled()
    assert total(metrics, "requests_total") == 200
    assert total(metrics, "attempts_total") == total(metrics, "plans_total") == 200
    assert metrics["attempts_total{outcome=connect_failed}"] == 50
    assert not metrics.get("attempts_total{outcome=completed}")
    assert not total(metrics, "internal_errors_total")


async def visits(chance: Chance, count: int, at_once: int) -> list[Visit]:
    """So many clients, so many at a time."""
    room = asyncio.Semaphore(at_once)

    async def one() -> Visit:
        async with room:
            return await chance.visit()

    return await asyncio.gather(*(one() for _ in range(count)))


async def flap(engine: StubEngine, rng: Random) -> None:
    """Healthy and not, until cancelled."""
    while True:
        await asyncio.sleep(rng.random() * 0.4)
        engine.is_healthy = not engine.is_healthy


async def wear_and_tear(router: WholeRouter, engine: StubEngine, rng: Random) -> None:
    """The worker drains, and goes, and comes, until cancelled."""
    url = f"/workers/{engine.name}"
    while True:
        await router.control.patch(url, json={"draining": rng.random() < 0.5})
        await asyncio.sleep(rng.random() * 0.2)
        await router.control.delete(url)
        await asyncio.sleep(rng.random() * 0.1)
        again = {"name": engine.name, "url": engine.url}
        assert (await router.control.post("/workers", json=again)).status_code == 201


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("seed", "policy", "max_in_flight"),
    [(1, "cost", None), (2, "round_robin", 4)],
)
def test_whatever_happens_everything_is_counted_once_and_given_back(
    seed: int,
    policy: str,
    max_in_flight: int | None,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(everything_at_once(seed, policy, max_in_flight))


async def everything_at_once(seed: int, policy: str, max_in_flight: int | None) -> None:
    """Hundreds of clients that leave at any moment, workers that do anything, flap, drain, go and come; with room for
    all of them, and with a queue for little room."""
    rng = Random(seed)
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                stub_engine(
                    script=anything(Random(rng.getrandbits(32)), bad_share), tokenizer=tokenizer
                )
            )
            for bad_share, tokenizer in (
                (0.0, str(bundled_model_dir())),
                (0.3, str(bundled_model_dir())),
                (0.6, ""),
                (0.9, ""),
            )
        ]
        router = await stack.enter_async_context(
            whole_router(
                *engines,
                policy=policy,
                health={"interval_s": 0.05, "timeout_s": 0.2, "failure_threshold": 2},
                breaker={"num_faults": 4, "cool_down_s": 0.1, "max_cool_down_s": 0.2},
                timeouts={"first_byte_s": 0.4, "idle_s": 0.4},
                queue={"max_in_flight": max_in_flight, "max_queued": 10, "timeout_s": 0.2},
                ready={"min_workers": 3},
            )
        )
        chance = Chance(rng, router.ports["data"])
        meanwhile = [
            asyncio.ensure_future(flap(engines[2], rng)),
            asyncio.ensure_future(wear_and_tear(router, engines[3], rng)),
        ]
        seen = await visits(chance, 150, at_once=40)
        for one in meanwhile:
            one.cancel()
        ends = await asyncio.gather(*meanwhile, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        metrics = await router.settled()
    num_asked = sum(visit.num_asked for visit in seen)
    assert total(metrics, "requests_total") == num_asked
    by_class = Counter(f"{status // 100}xx" for visit in seen for status in visit.statuses)
    counted = Counter[str]()
    for key, value in metrics.items():
        if key.startswith("requests_total"):
            counted[key.partition("status=")[2].rstrip("}")] += int(value)
    assert counted["closed"] <= num_asked - by_class.total()
    assert by_class <= counted
    assert total(metrics, "attempts_total") == total(metrics, "plans_total")
    assert not total(metrics, "internal_errors_total")
    assert not total(metrics, "index_failures_total")
    assert not total(metrics, "tick_failures_total")
    assert metrics["queue_depth"] == 0
    if max_in_flight is None:
        assert not total(metrics, "queue_waits_total")
