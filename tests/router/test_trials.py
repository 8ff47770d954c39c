"""Requests that nobody can take: who may be tried all the same, how often, and what becomes of it."""

import time

import pytest

from protocol import Rank, WorkerId, pack_tokens
from router.breaker import BreakerState
from router.trials import Trials
from scoring import OutcomeKind, PlanRequest
from scoring.brain import NoCandidateError, Outcome
from tests.router.brains import TestFleet, fleet
from tests.router.stub_engine import stub_engine
from tests.router.stub_worker import Peer, response
from tests.router.test_service import BODY, service

REQUEST = PlanRequest("r", "chat", "m", None, 0.0)


def fail(one: TestFleet, worker: WorkerId, kind: OutcomeKind = OutcomeKind.WORKER_ERROR) -> None:
    """Open its breaker."""
    for _ in range(5):
        one.registry.attempt_ended(Rank(worker), kind, one.clock.now)
    assert one.registry.record(worker).breaker.state is BreakerState.OPEN


def tried(one: TestFleet, request: PlanRequest = REQUEST) -> str:
    """Whom a request without a candidate tries, in vain."""
    with pytest.raises(NoCandidateError):
        one.brains.planner.plan(request, one.clock.now)
    plan = Trials(one.registry, one.brains.planner).plan(request, one.clock.now)
    one.check()
    if plan is None:
        return ""
    one.brains.planner.finish(plan.plan_id, Outcome(OutcomeKind.WORKER_ERROR), one.clock.now)
    one.registry.attempt_ended(plan.rank, OutcomeKind.WORKER_ERROR, one.clock.now)
    return plan.rank.worker


def test_the_one_that_half_opens_soonest_and_was_not_tried_of_late() -> None:
    with fleet() as one:
        first, second = one.learn("w0"), one.learn("w1")
        fail(one, first)
        one.tick(0.5)
        fail(one, second)
        assert tried(one) == first
        assert tried(one) == ""
        one.tick(0.25)
        assert [tried(one), tried(one), tried(one)] == [first, second, ""]


def test_one_that_works_again_closes_its_breaker() -> None:
    with fleet() as one:
        worker = one.learn("w0")
        fail(one, worker)
        one.tick(0.25)
        plan = Trials(one.registry, one.brains.planner).plan(REQUEST, one.clock.now)
        assert plan is not None
        assert one.plan() == "", "it is one request's trial"
        one.registry.attempt_ended(plan.rank, OutcomeKind.COMPLETED, one.clock.now)
        assert one.plan() == worker
        assert one.registry.record(worker).breaker.num_trials == 1


def test_who_is_not_tried() -> None:
    """Whoever is kept away by something else than its breaker."""
    with fleet() as one:
        names = ["unhealthy", "asleep", "draining", "other", "short"]
        changes: dict[str, dict[str, object]] = {
            "asleep": {"is_asleep": True},
            "other": {"model": "another"},
            "short": {"max_model_len": 2},
        }
        for name in names:
            fail(one, one.learn(name, **changes.get(name, {})))
        for _ in range(3):
            one.registry.probed(WorkerId("unhealthy"), "refused", one.clock.now)
        one.registry.set_draining(WorkerId("draining"), is_draining=True)
        one.tick(1.0)
        request = REQUEST._replace(tokens=pack_tokens([1, 2, 3, 4]))
        assert tried(one, request) == ""
        assert tried(one, request._replace(excluded=frozenset({Rank(WorkerId("short"))}))) == ""
        assert one.registry.record(WorkerId("short")).breaker.num_trials == 0
        assert tried(one, REQUEST) == "short"


async def test_an_outage_of_all_workers_is_over_when_it_is_over() -> None:
    """The only worker fails, its breaker opens, it works again: so do requests, long before the cool-down."""

    async def serve(peer: Peer) -> None:
        await peer.send(response(b"{}", status=500 if is_failing else 200))

    async def ask() -> int:
        return (await router.data.post("/v1/chat/completions", json=BODY)).status_code

    is_failing = True
    breaker = {"num_faults": 2, "cool_down_s": 2.0, "max_cool_down_s": 3_600.0}
    async with stub_engine(script=serve) as engine, service(engine, breaker=breaker) as router:
        await router.ready()
        assert await ask() == 500
        began = time.monotonic()
        answers = [await ask(), await ask()]
        took_s = time.monotonic() - began
        is_quick = took_s < breaker["cool_down_s"] / 10  # nobody may try it again yet
        assert answers == [500, 503] or (not is_quick and answers == [500, 500])
        is_failing = False
        statuses = [await ask()]
        while statuses[-1] != 200:
            statuses.append(await ask())
        assert set(statuses) <= {503, 200}
        metrics = (await router.control.get("/metrics")).text
        trials = f'kvroute_breaker_trials_total{{worker="{engine.name}"}}'
        assert f"{trials} 1.0" in metrics or not is_quick
