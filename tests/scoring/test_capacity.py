"""Ranks at their capacity: whose bound it is, who is no candidate for it, and who is told of room."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from protocol import Rank, TokenBytes, WorkerId
from scoring.brain import NoCandidateError, Outcome, OutcomeKind, Plan, PlanRequest
from scoring.capacity import UNBOUNDED, Capacity
from scoring.decision import Exclusion
from scoring.planner import Planner, PlannerLimits
from scoring.policies import PolicyName
from tests.scoring.fleet import COMPLETED, TruthIndex, rank, spec, tokens_of
from tests.scoring.fleet import request as request_of


@dataclass
class Watch:
    """Remembers what it is told."""

    is_waited_for: bool = True
    freed: list[Rank] = field(default_factory=list)
    num_marks: int = 0
    num_fleets: int = 0

    def rank_freed(self, rank: Rank) -> None:
        self.freed.append(rank)

    def marks_changed(self) -> None:
        self.num_marks += 1

    def workers_changed(self) -> None:
        self.num_fleets += 1


def bounded(max_in_flight: int | None, *watches: Watch, **workers: object) -> Planner:
    """A planner with these workers; what is given of each changes its description."""
    limits = PlannerLimits(max_plan_age_s=10.0)
    planner = Planner(
        TruthIndex(), policy=PolicyName.COST, rng=Random(0), limits=limits, timer=lambda: 0
    )
    planner.bound(Capacity(max_in_flight), *watches)
    for name, changes in (workers or {"a": {}}).items():
        assert isinstance(changes, dict)
        planner.add_worker(spec(name, **changes))
    return planner


def request(tokens: TokenBytes | None = None, **changes: Any) -> PlanRequest:
    """A chat, with these fields changed."""
    return request_of(tokens)._replace(**changes)


def why_not(planner: Planner, asked: PlanRequest) -> dict[str, int]:
    """Why nobody takes the request."""
    with pytest.raises(NoCandidateError) as caught:
        planner.plan(asked, 0.0)
    planner.check()
    return dict(caught.value.decision.excluded)


def fill(planner: Planner, count: int) -> list[Plan]:
    return [planner.plan(request(), 0.0) for _ in range(count)]


@pytest.mark.parametrize(
    ("capacity", "changes", "expected"),
    [
        (Capacity(), {}, UNBOUNDED),
        (Capacity(), {"max_running": 8}, UNBOUNDED),
        (Capacity(), {"max_in_flight": 3}, 3),
        (Capacity(5), {}, 5),
        (Capacity(5), {"max_in_flight": 7}, 7),
        (Capacity(5), {"max_running": 8}, 5),
        (Capacity(5, 1.5), {}, 5),
        (Capacity(5, 1.5), {"max_running": 8}, 12),
        (Capacity(None, 1.5), {"max_running": 8, "max_in_flight": 2}, 2),
        (Capacity(None, 0.01), {"max_running": 8}, 1),
    ],
)
def test_a_workers_own_bound_goes_before_the_engines_and_that_before_the_fleets(
    capacity: Capacity, changes: dict[str, object], expected: int
) -> None:
    assert capacity.of(spec("a", **changes)) == expected


def test_a_rank_at_its_capacity_is_no_candidate_until_a_request_ends() -> None:
    planner = bounded(2)
    plans = fill(planner, 2)
    assert why_not(planner, request()) == {Exclusion.AT_CAPACITY: 1}
    planner.finish(plans[0].plan_id, COMPLETED, 0.0)
    assert planner.plan(request(), 0.0).rank == rank("a")


def test_each_rank_of_a_worker_has_the_capacity_and_both_are_filled() -> None:
    planner = bounded(2, a={"num_ranks": 2})
    assert sorted(plan.rank.dp_rank for plan in fill(planner, 4)) == [0, 0, 1, 1]
    assert why_not(planner, request()) == {Exclusion.AT_CAPACITY: 2}


def test_requests_of_every_api_count_and_are_bounded() -> None:
    planner = bounded(1)
    planner.plan(request(api="other", model=None), 0.0)
    assert why_not(planner, request()) == {Exclusion.AT_CAPACITY: 1}
    assert why_not(planner, request(api="other", model=None)) == {Exclusion.AT_CAPACITY: 1}


def test_a_full_rank_is_said_to_be_full_only_if_nothing_else_keeps_it() -> None:
    planner = bounded(1, a={"max_model_len": 100}, b={}, c={})
    fill(planner, 3)
    planner.set_excluded(WorkerId("b"), Exclusion.UNHEALTHY)
    asked = request(tokens_of(200), excluded=frozenset({rank("c")}))
    assert why_not(planner, asked) == {
        Exclusion.PROMPT_TOO_LONG: 1,
        Exclusion.UNHEALTHY: 1,
        Exclusion.ALREADY_TRIED: 1,
    }


def test_the_record_shows_who_is_full_and_how_busy_it_is() -> None:
    planner = bounded(2)
    fill(planner, 2)
    candidate = planner.explain(request(), 0.0).candidates[0]
    assert (candidate.excluded_by, candidate.in_flight) == (Exclusion.AT_CAPACITY, 2)
    assert [load.max_in_flight for load in planner.rank_loads(0.0)] == [2]
    assert [load.max_in_flight for load in bounded(None).rank_loads(0.0)] == [None]


def test_the_record_shows_the_wait_where_there_was_one() -> None:
    planner = bounded(None)
    assert "wait" not in planner.plan(request(), 0.0).decision.timing_us
    waited = request(timing_us={"wait": 1500, "render": 3})
    assert planner.plan(waited, 0.0).decision.timing_us["wait"] == 1500


def test_a_described_worker_has_its_new_capacity_and_keeps_what_is_in_flight() -> None:
    planner = bounded(2)
    fill(planner, 2)
    planner.add_worker(spec("a", max_in_flight=3))
    fill(planner, 1)
    planner.add_worker(spec("a", max_in_flight=1))
    assert why_not(planner, request()) == {Exclusion.AT_CAPACITY: 1}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request(), "abc"),
        (request(model="other"), ""),
        (request(excluded=frozenset({rank("b")})), "ac"),
        (request(tokens_of(200)), "bc"),
        (request(tokens_of(200), is_approximate=True), "abc"),
        (request(keeper=WorkerId("b")), "b"),
    ],
    ids=["anybody", "unknown_model", "tried", "long", "of_unknown_length", "kept"],
)
def test_takers_are_those_who_may_ever_serve_it_full_ill_or_draining(
    asked: PlanRequest, expected: str
) -> None:
    planner = bounded(1, a={"max_model_len": 100}, b={}, c={})
    planner.plan(request(), 0.0)
    planner.set_excluded(WorkerId("b"), Exclusion.UNHEALTHY)
    planner.set_draining(WorkerId("c"), is_draining=True)
    assert planner.takers(asked) == {rank(name) for name in expected}


def test_who_waits_is_told_of_each_request_that_ends() -> None:
    watch = Watch()
    planner = bounded(1, watch, a={}, b={})
    first, second = fill(planner, 2)
    planner.finish(first.plan_id, COMPLETED, 0.0)
    planner.finish(first.plan_id, COMPLETED, 0.0)
    assert watch.freed == [first.rank]
    planner.finish(second.plan_id, Outcome(OutcomeKind.CLIENT_CLOSED), 0.0)
    assert watch.freed == [first.rank, second.rank]


def test_who_waits_is_not_told_of_the_end_of_what_took_no_place() -> None:
    watch = Watch()
    planner = bounded(1, watch)
    about = request(api="other", model=None, keeper=WorkerId("a"))
    planner.finish(planner.plan(about, 0.0).plan_id, COMPLETED, 0.0)
    planner.plan(about, 0.0)
    planner.tick(11.0)
    assert not watch.freed


def test_every_relay_that_waits_is_told_of_room_and_all_of_changes() -> None:
    waiting, idle, other = Watch(), Watch(is_waited_for=False), Watch()
    planner = bounded(1, waiting, idle, other)
    plan = fill(planner, 1)[0]
    planner.set_draining(WorkerId("a"), is_draining=True)
    planner.finish(plan.plan_id, COMPLETED, 0.0)
    assert [one.freed for one in (waiting, idle, other)] == [[plan.rank], [], [plan.rank]]
    assert [(one.num_marks, one.num_fleets) for one in (waiting, idle, other)] == [(1, 1)] * 3


def test_a_plan_that_nobody_finishes_frees_its_rank_in_the_end() -> None:
    watch = Watch()
    planner = bounded(1, watch)
    plan = fill(planner, 1)[0]
    planner.tick(11.0)
    assert watch.freed == [plan.rank]


def test_where_nobody_waits_nobody_is_told_of_a_rank() -> None:
    watch = Watch(is_waited_for=False)
    planner = bounded(1, watch)
    planner.finish(fill(planner, 1)[0].plan_id, COMPLETED, 0.0)
    assert not watch.freed


def test_changes_of_marks_and_workers_are_told_and_what_stays_is_not() -> None:
    watch = Watch()
    planner = bounded(1, watch)
    assert (watch.num_marks, watch.num_fleets) == (0, 1)
    worker = WorkerId("a")
    for reason in (Exclusion.UNHEALTHY, Exclusion.UNHEALTHY, None, None):
        planner.set_excluded(worker, reason)
    assert watch.num_marks == 2
    for is_draining in (True, True, False):
        planner.set_draining(worker, is_draining=is_draining)
    assert watch.num_marks == 4
    planner.remove_worker(worker)
    assert watch.num_fleets == 2
