"""Whole routers before workers that fail: who is left alone, for how long, and that all of it is over when it is over."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NoReturn

import pytest

from indexer.fleet_index import FleetIndex
from prompt import bundled_model_dir
from protocol import BlockStored, EventBatch, LiveMessage, WorkerId, encode_batch, live_frames
from router.worker_record import WorkerState
from tests.router.failing_workers import close_at_once, reset_at_once
from tests.router.front_door import bundled_model, connect
from tests.router.stub_engine import (
    StubEngine,
    StubPublisher,
    answer_chat,
    stub_engine,
    stub_publisher,
    until,
)
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, Script, answering, chunk, response
from tests.router.whole_router import BODY, CHAT, WholeRouter, total, whole_router

HEADERS = (("Content-Type", "application/json"), ("Retry-After", "7"))


class Moody:
    """A script that can be exchanged while it serves."""

    def __init__(self, script: Script = answer_chat) -> None:
        self.script = script

    async def __call__(self, peer: Peer) -> None:
        """Serve as told last."""
        await self.script(peer)


async def statuses(router: WholeRouter, count: int) -> list[int]:
    """Of so many requests, one after the other."""
    return [(await router.ask()).status_code for _ in range(count)]


async def test_rejections_and_back_pressure_open_no_circuit_and_faults_do() -> None:
    """The only worker says 400, then that it is busy, then fails; a good request follows each."""
    mood = Moody()
    breaker = {"num_faults": 5, "cool_down_s": 4.0}
    async with (
        stub_engine(script=mood) as engine,
        whole_router(engine, breaker=breaker) as router,
    ):
        for status in (400, 404, 422, 429, 503):
            mood.script = answering(response(b'{"detail":"no"}', status=status, headers=HEADERS))
            assert await statuses(router, 20) == [status] * 20
            mood.script = answer_chat
            assert await statuses(router, 1) == [200]
        served = engine.num_served
        assert served == 5 * 21
        mood.script = answering(response(b"{}", status=500))
        started = time.monotonic()
        told = await statuses(router, 10)
        assert told[:5] == [500] * 5
        assert set(told[5:]) <= {500, 503}
        num_trials = int((time.monotonic() - started) / (4.0 / 20)) + 1  # let through to try it
        assert engine.num_served - served <= 5 + num_trials
        opened = f"breaker_opened_total{{worker={engine.name}}}"
        assert (await router.metrics())[opened] == 1
        mood.script = answer_chat
        async with asyncio.timeout(5):
            while await statuses(router, 1) != [200]:
                pass
        assert await statuses(router, 5) == [200] * 5
        await router.settled()


async def test_a_circuit_that_is_half_open_does_not_stay_so_for_want_of_traffic() -> None:
    mood = Moody(reset_at_once)
    breaker = {"num_faults": 2, "cool_down_s": 0.1, "max_cool_down_s": 0.2}
    async with (
        stub_engine(script=mood) as engine,
        whole_router(engine, breaker=breaker) as router,
    ):
        assert await statuses(router, 2) == [502, 502]
        (record,) = router.registry.records()
        for _ in range(3):  # each trial after a cool-down fails, and none is the last
            await until(lambda: record.state is WorkerState.SERVING)
            served = engine.num_served
            assert await statuses(router, 1) == [502]
            assert engine.num_served == served + 1
        await asyncio.sleep(0.6)  # nothing comes
        mood.script = answer_chat
        assert await statuses(router, 2) == [200, 200]


@asynccontextmanager
async def warm_and_cold(
    warm_script: Script, **overrides: object
) -> AsyncIterator[tuple[WholeRouter, StubPublisher, StubEngine, StubEngine]]:
    """Two workers, of which one publishes that it holds the prompt."""
    tokenizer = str(bundled_model_dir())
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(stub_publisher())
        warm = await stack.enter_async_context(
            stub_engine(tokenizer=tokenizer, kv_events=publisher.kv_events, script=warm_script)
        )
        cold = await stack.enter_async_context(stub_engine(tokenizer=tokenizer))
        router = await stack.enter_async_context(whole_router(warm, cold, **overrides))
        await until(publisher.is_subscribed)
        publisher.store(tokens())
        await until(lambda: num_blocks(router) > 0)
        yield router, publisher, warm, cold


def tokens() -> list[int]:
    """Of the prompt, whole blocks."""
    model = bundled_model()
    found = list(model.encode(model.render_chat(BODY), add_special_tokens=False))
    return found[: len(found) // 4 * 4]


def num_blocks(router: WholeRouter) -> int:
    """Blocks that somebody is known to hold on GPU."""
    states = router.registry._brains.index.rank_states(time.monotonic())
    return sum(sum(state.blocks.values()) for state in states)


@pytest.mark.parametrize(
    "script", [answering(response(b"{}", status=500)), reset_at_once, close_at_once]
)
async def test_a_broken_worker_with_the_best_prefix_costs_a_handful_and_comes_back(
    script: Script,
) -> None:
    mood = Moody(script)
    cool_down_s = 0.5
    breaker = {"num_faults": 3, "cool_down_s": cool_down_s, "max_cool_down_s": cool_down_s}
    async with warm_and_cold(mood, breaker=breaker) as (router, publisher, warm, _):
        started = time.monotonic()
        assert await statuses(router, 50) == [200] * 50
        num_cool_downs = int((time.monotonic() - started) / cool_down_s) + 1
        assert 3 <= warm.num_served <= 3 + num_cool_downs
        mood.script = answer_chat
        served = warm.num_served
        record = router.registry.record(WorkerId(warm.name))
        await until(lambda: record.state is WorkerState.SERVING)
        publisher.store(tokens())
        assert await statuses(router, 50) == [200] * 50
        assert warm.num_served > served
        metrics = await router.settled()
    assert total(metrics, "requests_total") == 100
    assert metrics["requests_total{api=chat,status=2xx}"] == 100


class BrokenIndex(FleetIndex):
    """Fails at every question and at all that it is told."""

    def _fail(self, *_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("in the index")

    match = predict = withdraw = observe = report = trust = _fail


async def test_events_that_cannot_be_and_lookups_that_fail_cost_no_request() -> None:
    """Blocks that are their own parents, an index that raises, then no worker at all."""
    async with warm_and_cold(answer_chat) as (router, publisher, warm, cold):

        def publish(*stored: BlockStored) -> None:
            message = LiveMessage(b"", publisher.seq, encode_batch(EventBatch(1.0, stored, 0)))
            publisher.socket.send_multipart(live_frames(message))
            publisher.seq += 1

        before = num_blocks(router)
        publish(BlockStored([11], 11, [1, 2, 3, 4], 4))
        publish(
            BlockStored([12], 13, [5, 6, 7, 8], 4),
            BlockStored([13], 12, [9, 10, 11, 12], 4),
        )
        publish(BlockStored([14], None, [13, 14, 15, 16], 4))
        await until(lambda: num_blocks(router) == before + 1)
        assert await statuses(router, 5) == [200] * 5

        guarded = router.planner._index
        index, guarded._index = guarded._index, BrokenIndex()
        assert await statuses(router, 5) == [200] * 5
        failures = await router.metrics()
        assert failures["index_failures_total{verb=match}"] == 5
        guarded._index = index

        for engine in (warm, cold):
            assert (await router.control.delete(f"/workers/{engine.name}")).status_code < 300
        answer = await router.ask()
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "no_worker"
        await router.settled()


async def test_a_worker_on_its_way_out_gets_nothing_new_and_finishes_what_it_has() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        if b'"stream":true' not in peer.request.body:
            await answer_chat(peer)
            return
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    async with warm_and_cold(script, policy="prefix_only") as (router, _, warm, cold):
        async with AsyncExitStack() as stack:
            streams = []
            for _ in range(3):
                request = router.data.stream("POST", CHAT, json=dict(BODY) | {"stream": True})
                stream = await stack.enter_async_context(request)
                assert stream.headers["x-kvroute-worker"] == warm.name
                streams.append(stream)
            url = f"/workers/{warm.name}"
            assert (await router.control.patch(url, json={"draining": True})).status_code == 200
            assert await statuses(router, 10) == [200] * 10
            assert (warm.num_served, cold.num_served) == (3, 10)
            release.set()
            texts = ["".join([text async for text in stream.aiter_text()]) for stream in streams]
            assert texts == ["data: 1\n\ndata: 2\n\n"] * 3
        assert (await router.control.patch(url, json={"draining": False})).status_code == 200
        other = f"/workers/{cold.name}"  # which is warm by now, too
        assert (await router.control.patch(other, json={"draining": True})).status_code == 200
        assert await statuses(router, 1) == [200]
        assert warm.num_served == 4
        await router.settled()


async def test_sigterm_with_streams_running_and_requests_coming() -> None:
    """Unready at once, alive all the time; requests within the window are served; every stream is whole."""
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        if b'"stream":true' not in peer.request.body:
            await answer_chat(peer)
            return
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    drain = {"window_s": 1.0, "finish_s": 10.0}
    async with stub_engine(script=script) as engine, whole_router(engine, drain=drain) as router:
        async with AsyncExitStack() as stack:
            streams = []
            for _ in range(5):
                request = router.data.stream("POST", CHAT, json=dict(BODY) | {"stream": True})
                streams.append(await stack.enter_async_context(request))
            async with connect(
                router.ports["data"]
            ) as idle:  # opened before, used within the window
                router.stop()
                await asyncio.sleep(0)
                seen = []
                for _ in range(4):
                    alive = await router.data.get("/health")
                    ready = await router.data.get("/ready")
                    asked = await router.ask()
                    seen.append((alive.status_code, ready.status_code, asked.status_code))
                    await asyncio.sleep(0.1)
                assert seen == [(200, 503, 200)] * 4
                await idle.send("GET", "/health")
                assert (await idle.answer()).status == 200
            await asyncio.sleep(1.0)
            assert not router.task.done()
            release.set()
            texts = ["".join([text async for text in stream.aiter_text()]) for stream in streams]
        assert texts == ["data: 1\n\ndata: 2\n\n"] * 5
        async with asyncio.timeout(5):
            await router.task
        router.check()
        assert router.planner.counters().open_plans == 0


async def test_a_busy_worker_that_misses_probes_now_and_then_stays() -> None:
    """Every third probe gets no answer; what it streams goes on, and it stays in rotation."""
    num_probes, release = 0, asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    async with stub_engine(script=script) as engine:
        serve = engine.worker.script

        async def busy(peer: Peer) -> None:
            nonlocal num_probes
            if peer.request.target == "/health":
                num_probes += 1
                if num_probes % 3 == 0:
                    await peer.gone()
                    return
            await serve(peer)

        engine.worker.script = busy
        health = {"interval_s": 0.05, "timeout_s": 0.05, "failure_threshold": 2}
        async with whole_router(engine, health=health) as router:
            request = router.data.stream("POST", CHAT, json=dict(BODY) | {"stream": True})
            async with request as stream:
                seen = set()
                before = num_probes
                while num_probes < before + 12:
                    (record,) = router.registry.records()
                    seen.add(record.state)
                    await asyncio.sleep(0.01)
                assert seen == {WorkerState.SERVING}
                release.set()
                text = "".join([text async for text in stream.aiter_text()])
            assert text == "data: 1\n\ndata: 2\n\n"
            await router.settled()


@pytest.mark.parametrize("num_frozen", [1, 4])
async def test_idle_values_that_a_worker_reports_for_ever_attract_nothing(num_frozen: int) -> None:
    """The router's own counts decide where requests go, whatever ``/metrics`` of one or all workers says."""
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await release.wait()
        await answer_chat(peer)

    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(stub_engine(script=script)) for _ in range(4)]
        for engine in engines[:num_frozen]:
            engine.pages["/metrics"] = "sglang:num_running_reqs 0.0\nsglang:token_usage 0.0\n"
        router = await stack.enter_async_context(whole_router(*engines))
        asked = [asyncio.ensure_future(router.ask()) for _ in range(80)]
        await until(lambda: sum(engine.num_served for engine in engines) == 80)
        assert [engine.num_served for engine in engines] == [20] * 4
        release.set()
        assert {(await one).status_code for one in asked} == {200}
        await router.settled()
