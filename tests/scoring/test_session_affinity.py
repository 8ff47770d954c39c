"""Session affinity: where a session stays, when it moves, and what the table forgets."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import WorkerId
from scoring.decision import Exclusion, Reason
from scoring.planner import Planner, PlannerLimits
from scoring.policies import PolicyName
from scoring.session_affinity import SessionAffinity
from scoring.weighing import Weighing
from tests.scoring.fleet import (
    COMPLETED,
    TruthIndex,
    load_rank,
    planner_of,
    rank,
    request,
    serve,
    spec,
    tokens_of,
)
from tests.scoring.weighed import option, row, weighed

FOUR = ("a", "b", "c", "d")
ROWS = {name: row(name) for name in FOUR}


def fleet(*names: str, limits: PlannerLimits | None = None) -> Planner:
    return planner_of(TruthIndex(), *names, policy=PolicyName.SESSION, limits=limits)


def turn(planner: Planner, session: str | None, now: float = 0.0) -> tuple[str, Reason]:
    """One request of a session, served: where it went and why."""
    plan = planner.plan(request(tokens_of(50), session=session), now)
    serve(planner, plan, now)
    planner.check()
    return plan.rank.worker, plan.decision.reason


def test_a_session_stays_however_busy_its_rank_is() -> None:
    planner = fleet(*FOUR)
    home, reason = turn(planner, "s")
    assert reason is Reason.SESSION_NEW
    load_rank(planner, home, 30)
    assert [turn(planner, "s", float(now)) for now in range(5)] == [(home, Reason.SESSION)] * 5
    other, reason = turn(planner, "t", 9.0)
    assert (other != home, reason) == (True, Reason.SESSION_NEW)
    assert turn(planner, None, 9.0)[1] in (Reason.LOWEST_COST, Reason.TIE)


def _drain(planner: Planner, home: str) -> None:
    planner.set_draining(WorkerId(home), is_draining=True)


def _fail(planner: Planner, home: str) -> None:
    planner.set_excluded(WorkerId(home), Exclusion.UNHEALTHY)


def _leave(planner: Planner, home: str) -> None:
    planner.remove_worker(WorkerId(home))


def _restart(planner: Planner, home: str) -> None:
    planner.remove_worker(WorkerId(home))
    planner.add_worker(spec(home))
    load_rank(planner, home, 30)  # so that cost takes another


@pytest.mark.parametrize("happens", [_drain, _fail, _leave, _restart])
def test_a_session_moves_once_when_its_rank_cannot_serve_it(happens: object) -> None:
    planner = fleet(*FOUR)
    home, _ = turn(planner, "s")
    assert callable(happens)
    happens(planner, home)
    moved, reason = turn(planner, "s")
    assert (moved != home, reason) == (True, Reason.SESSION_MOVED)
    planner.set_draining(WorkerId(home), is_draining=False)
    planner.set_excluded(WorkerId(home), None)
    assert turn(planner, "s") == (moved, Reason.SESSION)


def test_a_session_follows_its_retry() -> None:
    planner = fleet("a", "b")
    first = planner.plan(request(None, session="s"), 0.0)
    again = planner.plan(request(None, session="s", excluded=[first.rank]), 0.0)
    assert again.decision.reason is Reason.ONLY_CANDIDATE
    assert turn(planner, "s") == (again.rank.worker, Reason.SESSION)
    for plan in (first, again):
        planner.finish(plan.plan_id, COMPLETED, 0.0)


def test_a_name_is_a_session_in_each_model() -> None:
    planner = fleet("a", "b")
    for name in ("x", "y"):
        planner.add_worker(spec(name, model="m2"))
    asked = {model: request(None, model=model, session="s") for model in ("m", "m2")}
    homes = {model: planner.plan(one, 0.0).rank for model, one in asked.items()}
    for model, one in asked.items():
        plan = planner.plan(one, 1.0)
        assert (plan.rank, plan.decision.reason) == (homes[model], Reason.SESSION)


def test_a_dry_run_keeps_nothing() -> None:
    planner = fleet(*FOUR)
    for _ in range(2):
        decision = planner.explain(request(None, session="s"), 0.0)
        assert decision.reason is Reason.SESSION_NEW


@pytest.mark.parametrize(("now", "reason"), [(100.0, Reason.SESSION), (100.1, Reason.SESSION_NEW)])
def test_an_idle_session_is_forgotten(now: float, reason: Reason) -> None:
    planner = fleet(*FOUR, limits=PlannerLimits(max_session_idle_s=100.0))
    turn(planner, "s")
    assert turn(planner, "s", now)[1] is reason


def test_200_000_sessions_take_bounded_room() -> None:
    policy = SessionAffinity(max_sessions=1_000, max_idle_s=50.0)
    options = [option(one) for one in ROWS.values()]
    for number in range(200_000):
        policy.chose(weighed(options, request(None, session=f"s{number}")), ROWS["a"], number / 1e4)
    policy.check()
    assert len(policy._homes) == 1_000
    policy.chose(weighed(options, request(None, session="late")), ROWS["a"], 100.0)
    assert len(policy._homes) == 1


steps = st.tuples(
    st.sampled_from(["r", "s", "t", "u", None]),
    st.frozensets(st.sampled_from(FOUR), min_size=2),
    st.sampled_from([0.0, 1.0, 7.0, 20.0]),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_against_an_oracle(history: list[tuple[str | None, frozenset[str], float]]) -> None:
    """At most three sessions, none idle for more than 10 s: the last three that were used."""
    policy, rng, now = SessionAffinity(max_sessions=3, max_idle_s=10.0), Random(0), 0.0
    truth: dict[str, tuple[str, float]] = {}
    for session, present, seconds in history:
        now += seconds
        options = [option(ROWS[name], float(ord(name))) for name in FOUR if name in present]
        weighing: Weighing = weighed(options, request(None, session=session))
        ranking = policy.order(weighing, rng, now)
        best = ranking.options[0].row.rank.worker
        home, used_at = truth.get(session or "", ("", -99.0))
        cheapest = min(present)
        if session is None:
            assert best == cheapest
        elif now - used_at > 10.0:
            assert (best, ranking.reason) == (cheapest, Reason.SESSION_NEW)
        elif home in present:
            assert (best, ranking.reason) == (home, Reason.SESSION)
        else:
            assert (best, ranking.reason) == (cheapest, Reason.SESSION_MOVED)
        policy.chose(weighing, ranking.options[0].row, now)
        policy.check()
        if session is not None:
            truth.pop(session, None)
            truth[session] = (best, now)
            truth = dict(list(truth.items())[-3:])
        assert sorted(one.row.rank for one in ranking.options) == sorted(map(rank, present))
