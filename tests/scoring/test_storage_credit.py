"""Storage pools from the index to the choice: what a fetch costs, below which length, and what is shown."""

import json
from random import Random

import pytest

from indexer.fleet_index import FleetIndex
from indexer.storage_rules import StorageRules
from indexer.trust import Trust
from protocol import (
    BlockStored,
    EngineKind,
    EventBatch,
    Rank,
    StoragePool,
    StorageUse,
    TokenBytes,
    WorkerId,
    WorkerSpec,
    pack_tokens,
)
from scoring import Planner, PlanRequest, PolicyName, decision_json
from scoring.decision import Candidate

SIZE = 64
POOL = StoragePool(None, "mooncake", "10.0.0.9:1", "m", "tp1", "")
USE = StorageUse(POOL, writes_through=True)
TOKENS = list(range(1, 1 + 64 * SIZE))
RULES = StorageRules(infers=True)


def spec(name: str, use: StorageUse | None = USE, threshold: int | None = None) -> WorkerSpec:
    return WorkerSpec(
        WorkerId(name), f"http://{name}", "m", EngineKind.SGLANG, "0.5.23", SIZE,
        storage=use, prefetch_threshold=threshold,
    )  # fmt: skip


def planner_of(
    *workers: WorkerSpec, policy: PolicyName = PolicyName.COST
) -> tuple[Planner, FleetIndex]:
    index = FleetIndex(storage=RULES)
    planner = Planner(index, policy=policy, rng=Random(1))
    for worker in workers:
        index.add_worker(worker, 0.0)
        index.set_trust(Rank(worker.worker), Trust.EXACT, 0.0)
        planner.add_worker(worker)
    return planner, index


def copied_to_host(index: FleetIndex, worker: str, num_blocks: int) -> None:
    """The worker writes the prompt's first blocks through, and runs on."""
    tokens = TOKENS[: num_blocks * SIZE]
    event = BlockStored(list(range(num_blocks)), None, tokens, SIZE, "CPU_PINNED")
    index.apply(Rank(WorkerId(worker)), EventBatch(0.0, [event]), 0.0)


def packed(num_tokens: int) -> TokenBytes:
    return pack_tokens(TOKENS[:num_tokens])


def candidates(planner: Planner, num_tokens: int) -> dict[str, Candidate]:
    request = PlanRequest("r", "chat", "m", packed(num_tokens), 0.0)
    return {one.worker: one for one in planner.explain(request, 0.0).candidates}


def test_a_worker_that_never_served_a_prefix_fetches_it() -> None:
    planner, index = planner_of(spec("a"), spec("b"), spec("alone", None))
    copied_to_host(index, "a", 60)
    found = candidates(planner, 64 * SIZE)
    assert found["b"].storage_blocks == 60
    assert found["b"].storage_source == "inferred"
    assert found["b"].terms_ms["fetch"] == pytest.approx(60 * SIZE / 13.3, rel=1e-3)
    assert found["a"].storage_source is None
    assert found["alone"].matched_tokens == 0
    costs = [found[name].cost_ms or 0.0 for name in ("a", "b", "alone")]
    assert costs == sorted(costs)
    assert len(set(costs)) == 3


@pytest.mark.parametrize(
    ("num_blocks", "threshold", "is_fetched"),
    [(3, None, False), (4, None, True), (3, 192, True), (3, 193, False), (60, 10_000, False)],
)
def test_nothing_is_fetched_below_the_workers_own_threshold(
    num_blocks: int, threshold: int | None, is_fetched: bool
) -> None:
    planner, index = planner_of(spec("a"), spec("b", threshold=threshold))
    copied_to_host(index, "a", num_blocks)
    found = candidates(planner, 64 * SIZE)["b"]
    assert found.storage_blocks == num_blocks
    assert (found.terms_ms["fetch"] > 0) is is_fetched


@pytest.mark.parametrize("policy", [PolicyName.COST, PolicyName.PREFIX_ONLY])
@pytest.mark.parametrize(
    ("num_blocks", "threshold", "is_worth_it"),
    [(3, None, False), (4, None, True), (3, 192, True), (3, 193, False), (60, 10_000, False)],
)
def test_no_policy_prefers_what_is_not_fetched(
    num_blocks: int, threshold: int | None, is_worth_it: bool, policy: PolicyName
) -> None:
    """A pool's user against a worker that holds nothing at all: drawn from, or always first."""
    planner, index = planner_of(
        spec("a"), spec("b", threshold=threshold), spec("alone", None), policy=policy
    )
    copied_to_host(index, "a", num_blocks)
    planner.set_draining(WorkerId("a"), is_draining=True)
    request = PlanRequest("r", "chat", "m", packed(64 * SIZE), 0.0)
    first = {planner.explain(request, 0.0).candidates[0].worker for _ in range(40)}
    assert first == ({"b"} if is_worth_it else {"b", "alone"})


def test_the_longest_prefix_is_one_that_is_reused() -> None:
    """Two blocks on GPU are more than three in storage that nobody would fetch."""
    planner, index = planner_of(spec("a"), spec("b"), spec("c", None), policy=PolicyName.PREFIX_ONLY)  # fmt: skip
    copied_to_host(index, "a", 3)
    planner.set_draining(WorkerId("a"), is_draining=True)
    event = BlockStored([71, 72], None, TOKENS[: 2 * SIZE], SIZE, "GPU")
    index.apply(Rank(WorkerId("c")), EventBatch(0.0, [event]), 0.0)
    request = PlanRequest("r", "chat", "m", packed(64 * SIZE), 0.0)
    assert [one.worker for one in planner.explain(request, 0.0).candidates] == ["c", "b", "a"]


def test_equal_ranks_with_unequal_thresholds_are_priced_apart() -> None:
    planner, index = planner_of(spec("a"), spec("b", threshold=64), spec("c"), spec("d", threshold=64))  # fmt: skip
    copied_to_host(index, "a", 2)
    found = candidates(planner, 64 * SIZE)
    assert [found[name].terms_ms["fetch"] > 0 for name in "bcd"] == [True, False, True]


def test_a_burst_stays_where_its_first_request_fetches() -> None:
    planner, index = planner_of(spec("a"), spec("b"), spec("c"))
    copied_to_host(index, "a", 60)
    planner.set_draining(WorkerId("a"), is_draining=True)
    chosen = [
        planner.plan(PlanRequest(f"r{i}", "chat", "m", packed(60 * SIZE), 0.0), 0.0).rank
        for i in range(3)
    ]
    assert len(set(chosen)) == 1


def test_the_source_is_in_the_record() -> None:
    planner, index = planner_of(spec("a"), spec("b"))
    copied_to_host(index, "a", 60)
    request = PlanRequest("r", "chat", "m", packed(64 * SIZE), 0.0)
    record = json.loads(decision_json(planner.explain(request, 0.0)))
    sources = {one["worker"]: one["storage_source"] for one in record["candidates"]}
    assert sources == {"a": None, "b": "inferred"}
