"""How engines are told the rank, and what is planned where they cannot be told."""

import pytest

from indexer.match import RankMatch
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from prompt import Api
from protocol import EngineKind, Tier
from scoring.brain import Outcome, OutcomeKind, PlanRequest
from scoring.planner import Planner
from scoring.policies import PolicyName
from scoring.rank_pin import RankPin, rank_pins
from scoring.shared_match import with_shared
from scoring.speeds import NoSample
from scoring.worker_table import WorkerTable
from tests.scoring.fleet import TruthIndex, loads, planner_of, rank, request, spec, tokens_of, verbs

H, F, OLD, NO = RankPin.HEADER, RankPin.FIELD, RankPin.OLD_FIELD, RankPin.NONE
SGLANG, VLLM = EngineKind.SGLANG, EngineKind.VLLM
PROMPT = tokens_of(325)  # 20 blocks and 5 tokens


@pytest.mark.parametrize(
    ("engine", "version", "pins"),  # chat, completions, messages, responses, generate, other
    [
        (VLLM, "0.32.0", (H, H, H, NO, NO, H)),
        (VLLM, None, (H, H, H, NO, NO, H)),
        (SGLANG, "0.5.23", (H, H, H, H, F, NO)),
        (SGLANG, "0.6.0.dev1", (H, H, H, H, F, NO)),
        (SGLANG, "0.5.20", (H, H, H, H, F, NO)),
        (SGLANG, None, (H, H, H, H, F, NO)),
        (SGLANG, "main", (H, H, H, H, F, NO)),
        (SGLANG, "0.5.19", (H, H, H, NO, F, NO)),
        (SGLANG, "v0.5.10.post1", (H, H, H, NO, F, NO)),
        (SGLANG, "0.5.9", (OLD, OLD, NO, NO, OLD, NO)),
        (SGLANG, "0.5.6.post2", (OLD, OLD, NO, NO, OLD, NO)),
        (SGLANG, "0.5.3", (NO, NO, NO, NO, OLD, NO)),
        (SGLANG, "0.4.10", (NO, NO, NO, NO, OLD, NO)),
        (EngineKind.UNKNOWN, None, (H, H, H, H, H, H)),
    ],
)
def test_engines_versions_and_routes(
    engine: EngineKind, version: str | None, pins: tuple[RankPin, ...]
) -> None:
    apis = (Api.CHAT, Api.COMPLETIONS, Api.MESSAGES, Api.RESPONSES, Api.GENERATE, Api.OTHER)
    assert rank_pins(engine, version) == dict(zip(apis, pins, strict=True))


def planner_with(index: TruthIndex, **fields: object) -> Planner:
    """Two vLLMs of two ranks each."""
    planner = planner_of(index)
    for name in ("a", "b"):
        planner.add_worker(spec(name, engine=VLLM, num_ranks=2, **fields))
    return planner


def responses_request(**fields: object) -> PlanRequest:
    return request(PROMPT)._replace(api=Api.RESPONSES, **fields)  # type: ignore[arg-type]


def test_where_the_rank_can_be_told_the_one_that_holds_it_is_chosen() -> None:
    index = TruthIndex()
    planner = planner_with(index)
    index.hold(rank("b", 1), PROMPT)
    plan = planner.plan(request(PROMPT), 0.0)
    assert (plan.rank, plan.pin) == (rank("b", 1), RankPin.HEADER)
    assert verbs(index) == ["match", "predict"]


def test_where_it_cannot_the_worker_counts_with_what_its_ranks_hold_on_average() -> None:
    index = TruthIndex()
    planner = planner_with(index)
    index.hold(rank("b", 1), PROMPT)
    plan = planner.plan(responses_request(), 0.0)
    assert (plan.rank.worker, plan.pin) == ("b", RankPin.NONE)
    credit = {(one.worker, one.dp_rank): one.gpu_blocks for one in plan.decision.candidates}
    assert credit == {("a", 0): 0, ("a", 1): 0, ("b", 0): 10, ("b", 1): 10}


@pytest.mark.parametrize("kind", [OutcomeKind.COMPLETED, OutcomeKind.CLIENT_CLOSED])
def test_nothing_is_predicted_observed_or_reported_of_a_rank_that_may_be_another(
    kind: OutcomeKind,
) -> None:
    index = TruthIndex()
    planner = planner_with(index)
    plan = planner.plan(responses_request(), 0.0)
    assert sum(load[0] for load in loads(planner)) == 1
    planner.first_byte(plan.plan_id, 0.1)
    planner.finish(plan.plan_id, Outcome(kind, 325, 320, 7), 0.2)
    assert sum(load[0] for load in loads(planner)) == 0
    assert verbs(index) == ["match"]
    if kind is OutcomeKind.COMPLETED:
        assert planner.counters().no_samples[NoSample.UNKNOWN_RANK] == 1
    planner.check()


def test_no_cover_is_looked_for_on_a_rank_that_may_be_another() -> None:
    index = TruthIndex()
    planner = planner_with(index)
    planner.plan(responses_request(is_streaming=False), 0.0)
    planner.tick(0.001)
    assert verbs(index) == ["match"]


def test_a_prompt_that_went_nobody_knows_where_keeps_no_prediction_alive() -> None:
    index = TruthIndex()
    planner = planner_with(index)
    for name in ("a", "b"):
        planner.set_draining(spec(name).worker, name == "b")
    unpinned = planner.plan(responses_request(), 0.0)
    told = planner.plan(request(PROMPT, "r2", excluded=[rank("a", 1 - unpinned.rank.dp_rank)]), 0.0)
    assert told.rank == unpinned.rank
    planner.finish(told.plan_id, Outcome(OutcomeKind.CONNECT_FAILED), 0.1)
    assert index.predicted[told.rank] == set()


def test_a_worker_of_one_rank_is_planned_as_ever() -> None:
    index = TruthIndex()
    planner = planner_of(index)
    planner.add_worker(spec("a", engine=VLLM))
    plan = planner.plan(responses_request(), 0.0)
    assert plan.pin is RankPin.HEADER
    assert verbs(index) == ["match", "predict"]


def test_an_engine_that_is_learned_anew_is_told_in_its_new_way() -> None:
    planner = planner_of(TruthIndex())
    for version, pin in (("0.5.19", NO), ("0.5.20", H)):
        planner.add_worker(spec("a", engine=SGLANG, version=version, num_ranks=2))
        plan = planner.plan(responses_request(), 0.0)
        assert plan.pin is pin


@pytest.mark.parametrize("policy", list(PolicyName))
def test_every_policy_can_order_them(policy: PolicyName) -> None:
    planner = planner_of(TruthIndex(), policy=policy)
    planner.add_worker(spec("a", engine=VLLM, num_ranks=3))
    for number in range(4):
        plan = planner.plan(responses_request(request_id=f"r{number}"), 0.0)
        planner.check()
        planner.finish(plan.plan_id, Outcome(OutcomeKind.COMPLETED), 1.0)
    planner.check()


def test_averages_are_tier_by_tier_and_of_the_least_trusted() -> None:
    table = WorkerTable()
    table.add(spec("a", engine=VLLM, num_ranks=2))
    table.add(spec("b", engine=SGLANG, num_ranks=2))
    rows = table.rows()
    alone = RankMatch(Trust.EXACT, 16, 9)
    matches = [
        RankMatch(Trust.EXACT, 16, 5, 3, 2, 1, 1, StorageSource.INFERRED),
        RankMatch(Trust.DEGRADED, 8, 2),
        alone,
        alone,
    ]
    found = with_shared(rows, matches, Api.RESPONSES)
    assert found[0] is found[1]
    assert found[0] == RankMatch(Trust.DEGRADED, 8, 6, 3, 2, 1, 1, StorageSource.INFERRED)
    assert found[2:] == [alone, alone]
    assert with_shared(rows, matches, Api.CHAT) == matches


def test_equal_matches_are_left_as_they_are() -> None:
    table = WorkerTable()
    table.add(spec("a", engine=VLLM, num_ranks=2))
    index = TruthIndex()
    index.hold(rank("a", 0), PROMPT, Tier.HOST)
    same = RankMatch(Trust.EXACT, 16, 0, 20)
    assert with_shared(table.rows(), [same, same], Api.RESPONSES) == [same, same]
