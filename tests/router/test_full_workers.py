"""The whole router before engines that are full: from the configuration to the decision, the metrics and the shutdown."""

import asyncio

import httpx
import pytest

from tests.router.stub_engine import StubEngine, answer_chat, stub_engine, until
from tests.router.stub_worker import Peer, response
from tests.router.test_service import BODY, Service, service, stop

QUEUE = {"max_in_flight": 1, "timeout_s": 5.0}


class Gate:
    """The engine's script: chats are answered once they are let."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer) -> None:
        await self.places.acquire()
        await answer_chat(peer)

    def go_on(self, times: int = 1) -> None:
        for _ in range(times):
            self.places.release()


def chat(router: Service, name: str = "r", **more: object) -> "asyncio.Task[httpx.Response]":
    headers = {"x-request-id": name}
    return asyncio.create_task(
        router.data.post("/v1/chat/completions", json=BODY | more, headers=headers)
    )


async def metric(router: Service, name: str) -> float:
    """A sample by its name and labels, as it is written."""
    text = (await router.control.get("/metrics")).text
    return next(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ")
    )


async def depth(router: Service, expected: int) -> None:
    async with asyncio.timeout(5):
        while await metric(router, "kvroute_queue_depth") != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def busy(engine: StubEngine) -> None:
    """Wait until the engine has a chat."""
    await until(lambda: engine.num_served == 1)


async def test_a_request_waits_and_its_decision_and_the_metrics_tell_of_it() -> None:
    gate = Gate()
    async with stub_engine(script=gate) as engine, service(engine, queue=QUEUE) as router:
        await router.ready()
        running = chat(router, "running")
        await busy(engine)
        waiting = chat(router, "waiting")
        await depth(router, 1)
        dry_run = (await router.control.post("/debug/route", json=BODY)).json()
        assert dry_run["chosen"] is None
        assert dry_run["candidates"][0]["excluded_by"] == "at_capacity"
        assert dry_run["candidates"][0]["in_flight"] == 1
        gate.go_on(2)
        assert [(await one).status_code for one in (running, waiting)] == [200, 200]
        shown = (await router.control.get("/debug/decisions/waiting")).json()
        assert shown["chosen"]["worker"] == engine.name
        assert shown["timing_us"]["wait"] > 0
        assert (
            "wait" not in (await router.control.get("/debug/decisions/running")).json()["timing_us"]
        )
        assert await metric(router, 'kvroute_queue_waits_total{outcome="placed"}') == 1
        assert await metric(router, 'kvroute_queue_waits_total{outcome="expired"}') == 0
        assert await metric(router, "kvroute_queue_wait_seconds_count") == 1
        assert await metric(router, "kvroute_leases_open") == 0
        name = f'kvroute_rank_max_in_flight{{dp_rank="0",worker="{engine.name}"}}'
        assert await metric(router, name) == 1
        assert (await router.workers())[0]["ranks"][0]["max_in_flight"] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("queue", "entry", "info", "expected"),
    [
        ({}, {}, {"max_running_requests": 8}, None),
        ({"engine_factor": 1.5}, {}, {"max_running_requests": 8}, 12),
        ({"engine_factor": 1.5, "max_in_flight": 3}, {}, {"max_running_requests": None}, 3),
        ({"engine_factor": 2, "max_in_flight": 3}, {"max_in_flight": 5}, {"max_running_requests": 8}, 5),
        (
            {"engine_factor": 1},
            {},
            {"internal_states": [{"effective_max_running_requests_per_dp": 7}], "max_running_requests": 99},
            7,
        ),
    ],
)  # fmt: skip
async def test_the_bound_is_the_operators_or_the_engines(
    queue: dict[str, object], entry: dict[str, object], info: dict[str, object], expected: object
) -> None:
    async with stub_engine() as engine:
        page = engine.pages["/server_info"]
        assert isinstance(page, dict)
        engine.pages["/server_info"] = page | info
        async with service(engine, queue=queue, workers=[{"url": engine.url, **entry}]) as router:
            await router.ready()
            (worker,) = await router.workers()
            assert worker["ranks"][0]["max_in_flight"] == expected  # type: ignore[index]


async def test_a_worker_that_is_added_with_a_bound_takes_those_who_wait() -> None:
    gate = Gate()
    async with (
        stub_engine(script=gate) as full,
        stub_engine() as new,
        service(full, queue=QUEUE) as router,
    ):
        await router.ready()
        running = chat(router)
        await busy(full)
        waiting = [chat(router) for _ in range(3)]
        await depth(router, 3)
        added = {"url": new.url, "max_in_flight": 2}
        assert (await router.control.post("/workers", json=added)).status_code == 201
        for one in waiting:
            assert (await one).headers["x-kvroute-worker"] == new.name
        gate.go_on()
        assert (await running).status_code == 200
        refused = await router.control.post(
            "/workers", json={"url": "http://x", "max_in_flight": 0}
        )
        assert refused.status_code == 400
        assert "max_in_flight" in refused.text


async def test_who_waits_for_a_worker_that_is_removed_or_drained_goes_elsewhere_or_hears_it() -> (
    None
):
    gate = Gate()
    async with stub_engine(script=gate) as engine, service(engine, queue=QUEUE) as router:
        await router.ready()
        running = chat(router)
        await busy(engine)
        waiting = chat(router)
        await depth(router, 1)
        worker = f"/workers/{engine.name}"
        await router.control.patch(worker, json={"draining": True})
        assert ((await waiting).status_code, (await waiting).headers["retry-after"]) == (503, "1")
        await router.control.patch(worker, json={"draining": False})
        waiting = chat(router)
        await depth(router, 1)
        await router.control.delete(worker)
        assert (await waiting).status_code == 503
        gate.go_on()
        assert (await running).status_code == 200


async def test_who_waits_when_the_router_is_told_to_stop_is_served_within_the_drain() -> None:
    gate = Gate()
    async with stub_engine(script=gate) as engine, service(engine, queue=QUEUE) as router:
        await router.ready()
        running = chat(router)
        await busy(engine)
        waiting = chat(router)
        await depth(router, 1)
        stop()
        await asyncio.sleep(0.05)
        gate.go_on(2)
        assert [(await one).status_code for one in (running, waiting)] == [200, 200]
        async with asyncio.timeout(5):
            await router.task


async def test_who_waits_longer_than_the_drain_is_told_that_the_router_stops() -> None:
    drain = {"window_s": 0.0, "finish_s": 0.2}
    async with (
        stub_engine(script=Gate()) as engine,
        service(engine, queue=QUEUE, drain=drain) as router,
    ):
        await router.ready()
        running = chat(router)
        await busy(engine)
        waiting = chat(router)
        await depth(router, 1)
        stop()
        for one in (running, waiting):
            answer = await one
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
        async with asyncio.timeout(5):
            await router.task
        assert engine.num_served == 1


async def test_a_worker_that_turns_well_again_takes_those_who_wait_for_another() -> None:
    gate = Gate()
    health = {"interval_s": 0.05, "timeout_s": 1.0, "failure_threshold": 1}
    async with (
        stub_engine(script=gate) as full,
        stub_engine() as ill,
        service(full, ill, queue=QUEUE, health=health) as router,
    ):
        await router.ready()
        ill.is_healthy = False
        async with asyncio.timeout(5):
            while {one["state"] for one in await router.workers()} != {"serving", "unhealthy"}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running = chat(router)
        await busy(full)
        waiting = chat(router)
        await depth(router, 1)
        ill.is_healthy = True
        assert (await waiting).headers["x-kvroute-worker"] == ill.name
        gate.go_on()
        assert (await running).status_code == 200


async def test_a_worker_whose_breaker_is_open_is_not_tried_while_another_is_only_full() -> None:
    gate = Gate()

    async def failing(peer: Peer) -> None:
        await peer.send(response(b"{}", status=500))

    breaker = {"num_faults": 1, "cool_down_s": 60.0, "max_cool_down_s": 60.0}
    limits = {"max_attempts": 1}
    async with (
        stub_engine(script=gate) as full,
        stub_engine(script=failing) as broken,
        service(full, broken, queue=QUEUE, breaker=breaker, limits=limits) as router,
    ):
        await router.ready()
        first = [chat(router), chat(router)]
        await busy(full)
        await until(lambda: broken.num_served == 1)
        waiting = chat(router)
        await depth(router, 1)
        assert broken.num_served == 1
        gate.go_on(2)
        assert sorted([(await one).status_code for one in first]) == [200, 500]
        assert (await waiting).headers["x-kvroute-worker"] == full.name
