"""The planner's calls: what each books, tells the index, records and counts."""

from random import Random

import pytest

from indexer.fleet_index import FleetIndex
from indexer.match import RankMatch
from indexer.trust import Trust
from protocol import Tier, pack_tokens
from scoring.brain import (
    Brain,
    Outcome,
    OutcomeKind,
    TooManyRequestsError,
)
from scoring.decision import RankName, Reason
from scoring.planner import Planner, PlannerLimits
from scoring.policies import PolicyName
from scoring.prefix_index import IndexVerb
from scoring.speeds import MIN_SAMPLES, NoSample
from scoring.worker_table import TooManyWorkersError
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


def test_the_planner_is_a_brain() -> None:
    brain: Brain = planner_of(TruthIndex(), "a")
    assert brain.plan(request(PROMPT), 0.0).url == "http://a"


def test_a_streamed_request_from_plan_to_end() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    index.hold(rank("b"), PROMPT)
    plan = planner.plan(request(PROMPT), 1.0)
    assert plan.rank == rank("b")
    assert plan.decision.reason is Reason.LOWEST_COST
    assert loads(planner) == [(0, 0, 0), (1, 5, 0)]
    planner.first_byte(plan.plan_id, 2.0)
    planner.first_byte(plan.plan_id, 2.5)
    assert loads(planner) == [(0, 0, 0), (1, 0, 1)]
    planner.finish(plan.plan_id, Outcome(OutcomeKind.COMPLETED, 325, 320, 7), 3.0)
    assert loads(planner) == [(0, 0, 0)] * 2
    assert verbs(index) == ["match", "predict", "observe", "report"]
    at_decision = RankMatch(Trust.EXACT, 16, 20)
    assert index.calls[-1] == ("report", rank("b"), 320, at_decision, 1.0, 3.0)
    planner.check()


def test_an_unstreamed_request_is_observed_at_its_end() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a")
    plan = planner.plan(request(PROMPT, is_streaming=False), 0.0)
    planner.first_byte(plan.plan_id, 0.5)
    assert verbs(index) == ["match", "predict"]
    planner.finish(plan.plan_id, COMPLETED, 1.0)
    assert verbs(index) == ["match", "predict", "observe", "report"]


@pytest.mark.parametrize(
    "kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.COMPLETED]
)
@pytest.mark.parametrize("has_begun", [False, True])
def test_other_endings_release_and_teach_nothing(kind: OutcomeKind, has_begun: bool) -> None:
    index = TruthIndex()
    planner = planner_of(index, "a")
    plan = planner.plan(request(PROMPT), 0.0)
    if has_begun:
        planner.first_byte(plan.plan_id, 1.0)
    planner.finish(plan.plan_id, Outcome(kind), 2.0)
    assert loads(planner) == [(0, 0, 0)]
    assert "report" not in verbs(index)
    assert ("observe" in verbs(index)) is has_begun
    assert ("withdraw" in verbs(index)) is not has_begun
    assert planner.counters().outcomes == {kind: 1}


def test_what_other_requests_will_bring_stays_predicted() -> None:
    """Over the real index: those of the same rank that have not begun, whatever became of one."""
    index = FleetIndex()
    planner = Planner(index, policy=PolicyName.COST, rng=Random(1))
    for name in ("a", "b"):
        index.add_worker(spec(name), 0.0)
        planner.add_worker(spec(name))
    on_a, refused = [rank("b")], Outcome(OutcomeKind.CONNECT_FAILED)

    def predicted() -> int:
        return planner.explain(request(PROMPT, excluded=on_a), 1.0).candidates[0].predicted_blocks

    first, second = (planner.plan(request(PROMPT, excluded=on_a), 0.0) for _ in range(2))
    elsewhere = planner.plan(request(PROMPT, excluded=[rank("a")]), 0.0)
    index.tick(590.0)
    planner.finish(first.plan_id, refused, 590.0)
    assert predicted() == 20
    planner.finish(second.plan_id, refused, 590.0)
    assert predicted() == 0
    planner.finish(elsewhere.plan_id, refused, 590.0)
    assert index.stats().predicted == 0


def test_a_plan_that_is_given_up_predicts_nothing() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", limits=PlannerLimits(max_plan_age_s=10.0))
    planner.plan(request(PROMPT), 0.0)
    planner.tick(11.0)
    assert verbs(index) == ["match", "predict", "withdraw"]


def test_unknown_and_repeated_ids_are_ignored_and_counted() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a")
    plan = planner.plan(request(PROMPT), 0.0)
    serve(planner, plan, 1.0)
    calls = len(index.calls)
    serve(planner, plan, 2.0)
    serve(planner, planner.plan(request(None), 2.0), 2.0)
    planner.finish(12_345, COMPLETED, 3.0)
    assert len(index.calls) == calls + 1  # the one that asks for trust
    counters = planner.counters()
    assert counters.unknown_first_bytes == 1
    assert counters.unknown_finishes == 2
    assert counters.outcomes == {OutcomeKind.COMPLETED: 2}
    planner.check()


def test_without_tokens_load_decides_and_the_index_hears_nothing() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    first, second = (planner.plan(request(None), 0.0) for _ in range(2))
    assert {first.rank, second.rank} == {rank("a"), rank("b")}
    assert second.decision.reason is Reason.LOAD_ONLY
    assert second.decision.prompt_tokens is None
    serve(planner, first, 1.0)
    assert set(verbs(index)) == {"trust"}


def test_an_empty_prompt_is_routed() -> None:
    planner = planner_of(TruthIndex(), "a", "b")
    assert planner.plan(request(pack_tokens([])), 0.0).decision.prompt_tokens == 0


def test_a_failing_index_means_load_only() -> None:
    """Whatever the index raises, in whatever call, requests are served on load alone."""
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    index.hold(rank("b"), PROMPT)
    index.fault = RuntimeError("corrupt")
    plans = [planner.plan(request(PROMPT), 0.0) for _ in range(6)]
    assert {plan.decision.reason for plan in plans} == {Reason.LOAD_ONLY}
    assert [load[0] for load in loads(planner)] == [3, 3]
    for plan in plans:
        serve(planner, plan, 1.0)
    failures = planner.counters().index_failures
    assert failures[IndexVerb.MATCH] == failures[IndexVerb.PREDICT] == 6
    assert failures[IndexVerb.OBSERVE] == 6
    assert loads(planner, 1.0) == [(0, 0, 0)] * 2
    index.fault = None
    assert planner.plan(request(PROMPT), 2.0).decision.reason is Reason.LOWEST_COST
    planner.check()


def test_a_ghost_in_the_lookup_is_never_chosen() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    ghost = RankMatch(Trust.EXACT, 16, 20)
    index.lookup_answer = lambda matches: [ghost, *matches]
    assert planner.plan(request(PROMPT), 0.0).rank in {rank("a"), rank("b")}


def test_a_dry_run_changes_nothing() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b", policy=PolicyName.ROUND_ROBIN)
    before = planner.counters()
    dry = [planner.explain(request(PROMPT), 0.0) for _ in range(3)]
    assert {decision.chosen for decision in dry} == {RankName("a", 0)}
    assert planner.counters() == before
    assert planner.decisions(10) == []
    assert loads(planner) == [(0, 0, 0)] * 2
    assert verbs(index) == ["match"] * 3
    assert planner.plan(request(PROMPT), 0.0).rank == rank("a")


def test_dry_runs_do_not_disturb_later_draws() -> None:
    chosen = []
    for num_dry in (0, 5):
        planner = planner_of(TruthIndex(), "a", "b", "c", seed=4)
        for _ in range(num_dry):
            planner.explain(request(PROMPT), 0.0)
        chosen.append([planner.plan(request(None), 0.0).rank for _ in range(6)])
    assert chosen[0] == chosen[1]


def test_a_dry_run_without_a_candidate_says_so() -> None:
    decision = planner_of(TruthIndex()).explain(request(PROMPT), 0.0)
    assert decision.reason is Reason.NO_CANDIDATE
    assert decision.model == "m"


def test_an_unstreamed_prefill_falls_with_time() -> None:
    planner = planner_of(TruthIndex(), "a")
    long = tokens_of(8_000)
    planner.plan(request(long, is_streaming=False), 0.0)
    _, at_start, _ = loads(planner, 0.0)[0]
    _, halfway, _ = loads(planner, 0.5)[0]
    assert at_start == 8_000
    assert 3_000 < halfway < 5_000
    assert loads(planner, 2.0) == [(1, 0, 1)]
    other = tokens_of(8_000, seed=1)
    planner.plan(request(other, is_streaming=False), 0.0)  # it waits for the first
    assert loads(planner, 1.0)[0][1] > 8_000
    planner.tick(99.0)
    assert loads(planner, 99.0) == [(2, 0, 2)]
    planner.check()


def test_an_unstreamed_prefill_ends_when_events_cover_the_prompt() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a")
    long = tokens_of(8_000)
    planner.plan(request(long, is_streaming=False), 0.0)
    planner.tick(0.01)
    assert loads(planner, 0.01)[0][1] > 7_000
    index.hold(rank("a"), long)
    planner.tick(0.02)
    assert loads(planner, 0.02) == [(1, 0, 1)]


@pytest.mark.parametrize("are_decoding", [True, False])
def test_every_unstreamed_prefill_has_its_turn_to_be_found_covered(are_decoding: bool) -> None:
    """Those before it, finished with their prefill or not covered, do not keep it from being looked up."""
    index = TruthIndex()
    planner = planner_of(index, "a")
    for seed in range(64):
        first = tokens_of(400 if are_decoding else 80_000, seed + 1)
        planner.plan(request(first, is_streaming=False), 0.0)
    planner.tick(50.0)
    long = tokens_of(80_000)
    planner.plan(request(long, is_streaming=False), 50.0)
    index.hold(rank("a"), long)
    before = loads(planner, 50.0)[0][2]
    for _ in range(2):
        planner.tick(50.0)
    assert loads(planner, 50.0)[0][2] == before + 1
    planner.check()


def test_plans_that_nobody_finishes_are_given_up() -> None:
    planner = planner_of(TruthIndex(), "a", limits=PlannerLimits(max_plan_age_s=10.0))
    old, young = planner.plan(request(None), 0.0), planner.plan(request(PROMPT), 5.0)
    planner.tick(10.0)
    assert planner.counters().expired == 0
    planner.tick(12.0)
    assert planner.counters().expired == 1
    assert loads(planner, 12.0) == [(1, 325, 0)]
    planner.finish(old.plan_id, COMPLETED, 13.0)
    planner.finish(young.plan_id, COMPLETED, 13.0)
    assert planner.counters().unknown_finishes == 1
    planner.check()


def test_everything_is_bounded() -> None:
    limits = PlannerLimits(max_workers=2, max_open_plans=3, max_decisions=2)
    planner = planner_of(TruthIndex(), "a", "b", limits=limits)
    with pytest.raises(TooManyWorkersError):
        planner.add_worker(spec("c"))
    plans = [planner.plan(request(PROMPT, f"r{number}"), 0.0) for number in range(3)]
    with pytest.raises(TooManyRequestsError):
        planner.plan(request(PROMPT, "r3"), 0.0)
    assert [decision.request_id for decision in planner.decisions(9)] == ["r2", "r1"]
    assert planner.counters().refused == 1
    assert planner.counters().open_plans == 3
    serve(planner, plans[0], 1.0)
    planner.plan(request(PROMPT, "r3"), 1.0)
    planner.check()


def test_counters() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    index.hold(rank("a"), PROMPT)
    plans = [planner.plan(request(PROMPT), 0.0) for _ in range(2)]
    serve(planner, plans[0], 1.0, Outcome(OutcomeKind.COMPLETED, 325, 320))
    snapshot = planner.counters()
    serve(planner, plans[1], 1.0, Outcome(OutcomeKind.COMPLETED, 999, 160))
    assert snapshot.reuse.answers == 1
    counters = planner.counters()
    assert counters.plans == {(PolicyName.COST, Reason.LOWEST_COST): 2}
    assert (counters.lengths_equal, counters.lengths_differ) == (1, 1)
    assert (counters.reuse.matched_blocks, counters.reuse.reported_blocks) == (40, 30)
    assert (counters.reuse.matched_tokens, counters.reuse.reported_tokens) == (640, 480)
    assert counters.reuse.prompt_tokens == 650
    assert counters.no_samples == {NoSample.TOO_SHORT: 1, NoSample.QUEUED: 1}


def test_speed_is_learned_and_shown() -> None:
    planner = planner_of(TruthIndex(), "a", "b")
    for number in range(MIN_SAMPLES):
        plan = planner.plan(request(tokens_of(2_000, number), excluded=[rank("b")]), number * 9.0)
        planner.first_byte(plan.plan_id, number * 9.0 + 0.5)
        planner.finish(plan.plan_id, COMPLETED, number * 9.0 + 1.0)
    slow, pooled = planner.workers()
    assert slow.speed == pytest.approx(0.509, abs=0.01)
    assert pooled.speed == slow.speed
    assert (slow.num_speed_samples, pooled.num_speed_samples) == (MIN_SAMPLES, 0)
    decision = planner.explain(request(PROMPT), 99.0)
    assert decision.rates["prefill"] == "learned"
    assert decision.rate_values["prefill"] == pytest.approx(8_000 * 0.509, rel=0.02)
    assert planner.counters().speed_samples == MIN_SAMPLES


@pytest.mark.parametrize("policy", PolicyName)
def test_every_policy_plans_with_and_without_knowledge(policy: PolicyName) -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b", "c", policy=policy)
    index.hold(rank("b"), PROMPT, Tier.HOST)
    for tokens in (PROMPT, None, tokens_of(5)):
        decision = planner.plan(request(tokens), 0.0).decision
        assert decision.policy == policy.value
        assert decision.chosen is not None
        assert decision.candidates[0].worker == decision.chosen.worker
        costs = [one.cost_ms for one in decision.candidates]
        assert None not in costs
    planner.check()
