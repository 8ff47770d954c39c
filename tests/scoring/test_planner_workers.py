"""The planner's workers: who may be chosen, and what becomes of requests on those that change or go."""

from collections.abc import Callable

import pytest

from protocol import WorkerId
from scoring.brain import (
    NoCandidateError,
    PlanRequest,
)
from scoring.decision import Exclusion, RankName, Reason
from scoring.planner import Planner
from scoring.policies import PolicyName
from tests.scoring.fleet import (
    COMPLETED,
    TruthIndex,
    loads,
    planner_of,
    rank,
    request,
    serve,
    spec,
    tokens_of,
    verbs,
)

PROMPT = tokens_of(325)  # 20 blocks and 5 tokens


def _draining(planner: Planner) -> None:
    planner.set_draining(WorkerId("a"), is_draining=True)


def _excluded(reason: Exclusion) -> Callable[[Planner], None]:
    def mark(planner: Planner) -> None:
        planner.set_excluded(WorkerId("a"), reason)

    return mark


def _nothing(planner: Planner) -> None:
    pass


@pytest.mark.parametrize(
    ("mark", "asked", "reason"),
    [
        (_draining, request(PROMPT), Exclusion.DRAINING),
        (_excluded(Exclusion.UNHEALTHY), request(PROMPT), Exclusion.UNHEALTHY),
        (_excluded(Exclusion.BREAKER_OPEN), request(PROMPT), Exclusion.BREAKER_OPEN),
        (_excluded(Exclusion.SLEEPING), request(PROMPT), Exclusion.SLEEPING),
        (_nothing, request(PROMPT, excluded=[rank("a")]), Exclusion.ALREADY_TRIED),
        (_nothing, request(PROMPT, model="m2"), Exclusion.OTHER_MODEL),
        (_nothing, request(tokens_of(401), model="m"), Exclusion.PROMPT_TOO_LONG),
    ],
)
def test_who_is_excluded_is_not_chosen_however_much_it_holds(
    mark: Callable[[Planner], None], asked: PlanRequest, reason: Exclusion
) -> None:
    index = TruthIndex()
    planner = planner_of(index)
    planner.add_worker(spec("a", max_model_len=400))
    planner.add_worker(spec("b", aliases=("m2",)))
    index.hold(rank("a"), PROMPT)
    mark(planner)
    decision = planner.plan(asked, 0.0).decision
    assert decision.chosen == RankName("b", 0)
    assert decision.reason is Reason.ONLY_CANDIDATE
    assert decision.excluded == {reason.value: 1}
    assert [(one.worker, one.eligible, one.excluded_by) for one in decision.candidates] == [
        ("b", True, None),
        ("a", False, reason),
    ]
    assert decision.candidates[1].cost_ms is None


def test_a_prompt_of_the_longest_length_is_accepted() -> None:
    planner = planner_of(TruthIndex())
    planner.add_worker(spec("a", max_model_len=325))
    assert planner.plan(request(PROMPT), 0.0).rank == rank("a")


def test_marks_can_be_lifted() -> None:
    planner = planner_of(TruthIndex(), "a")
    worker = WorkerId("a")
    assert planner.set_draining(worker, is_draining=True)
    assert planner.set_excluded(worker, Exclusion.UNHEALTHY)
    assert planner.set_draining(worker, is_draining=False)
    with pytest.raises(NoCandidateError):
        planner.plan(request(PROMPT), 0.0)
    assert planner.set_excluded(worker, None)
    planner.plan(request(PROMPT), 0.0)
    assert not planner.set_draining(WorkerId("x"), is_draining=True)
    assert not planner.set_excluded(WorkerId("x"), None)


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")])
def test_nobody_can_take_it(names: tuple[str, ...]) -> None:
    index = TruthIndex()
    planner = planner_of(index, *names)
    with pytest.raises(NoCandidateError) as caught:
        planner.plan(request(PROMPT, model="other"), 0.0)
    decision = caught.value.decision
    assert decision.chosen is None
    assert decision.reason is Reason.NO_CANDIDATE
    assert decision.num_candidates == len(names)
    assert decision.excluded == ({"other_model": len(names)} if names else {})
    assert {one.excluded_by for one in decision.candidates} <= {Exclusion.OTHER_MODEL}
    assert planner.decision("r") is decision
    assert planner.counters().no_candidate == 1
    assert planner.counters().open_plans == 0
    assert "match" not in verbs(index)


def test_a_removed_worker_is_not_told_of_and_its_requests_still_end() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    on_a = planner.plan(request(PROMPT, excluded=[rank("b")]), 0.0)
    planner.remove_worker(WorkerId("a"))
    planner.add_worker(spec("a"))  # the same name is another worker
    calls = len(index.calls)
    serve(planner, on_a, 2.0)
    assert len(index.calls) == calls
    assert planner.counters().gone == 1
    assert loads(planner, 2.0) == [(0, 0, 0)] * 2
    planner.check()


def test_the_load_of_a_removed_worker_goes_with_it() -> None:
    planner = planner_of(TruthIndex(), "a")
    planner.plan(request(PROMPT), 0.0)
    planner.remove_worker(WorkerId("a"))
    planner.remove_worker(WorkerId("a"))
    assert planner.rank_loads(0.0) == []
    assert planner.workers() == []
    planner.check()


def test_a_prompt_is_matched_under_the_model_that_its_name_means() -> None:
    """One model's blocks never count for another, though the tokens are the same."""
    index = TruthIndex()
    planner = planner_of(index)
    planner.add_worker(spec("a", model="m1", aliases=("x",), adapters=("sql",)))
    planner.add_worker(spec("b", model="m2"))
    index.hold(rank("a"), PROMPT, model="m1")
    index.hold(rank("b"), PROMPT, model="m1")
    for name, blocks in [("m1", 20), ("x", 20), ("m2", 0), ("sql", 0)]:
        decision = planner.explain(request(PROMPT, model=name), 0.0)
        assert decision.candidates[0].gpu_blocks == blocks, name
        assert decision.model == name
    assert planner.models() == ["m1", "m2"]
    assert planner.served_names() == ["m1", "m2", "sql", "x"]


def test_plans_on_a_worker_that_left_are_not_looked_up() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    planner.plan(request(PROMPT, is_streaming=False, excluded=[rank("b")]), 0.0)
    planner.remove_worker(WorkerId("a"))
    planner.add_worker(spec("a"))  # the same name is another worker
    calls = len(index.calls)
    planner.tick(0.0)
    assert len(index.calls) == calls
    planner.check()


def test_worker_updates_keep_what_is_in_flight() -> None:
    planner = planner_of(TruthIndex(), policy=PolicyName.ROUND_ROBIN)
    planner.add_worker(spec("a", num_ranks=2))
    plans = [planner.plan(request(PROMPT), 0.0) for _ in range(4)]
    assert [load[0] for load in loads(planner)] == [2, 2]
    planner.add_worker(spec("a", num_ranks=1, aliases=("x",)))
    assert [load[0] for load in loads(planner)] == [2]
    for plan in plans:
        serve(planner, plan, 2.0)
    assert loads(planner) == [(0, 0, 0)]
    assert planner.counters().gone == 2
    planner.check()


@pytest.mark.parametrize(
    "asked", [request(PROMPT), request(None, model=None)._replace(api="other")]
)
def test_what_a_worker_keeps_only_that_worker_serves(asked: PlanRequest) -> None:
    planner = planner_of(TruthIndex(), "a", "b")
    planner.add_worker(spec("c", model="m2"))
    for name in ("a", "b"):
        decision = planner.explain(asked._replace(keeper=WorkerId(name)), 0.0)
        assert decision.chosen == RankName(name, 0)
        assert decision.excluded[Exclusion.NOT_KEEPER] >= 1
    kept = asked._replace(keeper=WorkerId("a"))
    _draining(planner)
    assert planner.explain(kept, 0.0).chosen == RankName("a", 0)
    planner.set_excluded(WorkerId("a"), Exclusion.UNHEALTHY)
    unhealthy = planner.explain(kept, 0.0)
    assert unhealthy.chosen is None
    assert unhealthy.excluded[Exclusion.UNHEALTHY] == 1
    gone = planner.explain(asked._replace(keeper=WorkerId("z")), 0.0)
    assert gone.chosen is None
    assert Exclusion.UNHEALTHY not in gone.excluded


def test_what_is_asked_about_kept_things_takes_no_room() -> None:
    planner = planner_of(TruthIndex())
    planner.add_worker(spec("a", max_in_flight=1))
    planner.plan(request(PROMPT), 0.0)
    kept = request(PROMPT)._replace(keeper=WorkerId("a"))
    assert planner.explain(kept, 0.0).excluded == {Exclusion.AT_CAPACITY: 1}
    about = request(None, model=None)._replace(api="other", keeper=WorkerId("a"))
    assert planner.explain(about, 0.0).chosen == RankName("a", 0)
    assert planner.explain(about._replace(keeper=None), 0.0).chosen is None


def test_what_is_asked_about_kept_things_takes_no_place_from_what_computes() -> None:
    planner = planner_of(TruthIndex())
    planner.add_worker(spec("a", max_in_flight=1))
    about = request(None, model=None)._replace(api="other", keeper=WorkerId("a"))
    followed = [planner.plan(about, 0.0) for _ in range(3)]
    planner.check()
    computing = planner.plan(request(PROMPT), 0.0)
    planner.check()
    assert planner.rank_loads(0.0)[0].in_flight == 4
    for plan in followed:
        planner.finish(plan.plan_id, COMPLETED, 0.0)
        planner.check()
        assert planner.explain(request(PROMPT), 0.0).excluded == {Exclusion.AT_CAPACITY: 1}
    planner.finish(computing.plan_id, COMPLETED, 0.0)
    planner.check()
    assert planner.rank_loads(0.0)[0].in_flight == 0
    assert planner.explain(request(PROMPT), 0.0).chosen is not None
