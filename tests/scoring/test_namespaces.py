"""Equal tokens under several names: models, aliases, adapters, salts. From request to score, over the real index."""

from random import Random

import pytest

from indexer.fleet_index import FleetIndex
from indexer.trust import Trust
from protocol import BlockStored, EngineKind, EventBatch, pack_tokens
from scoring.brain import Outcome, OutcomeKind, PlanRequest
from scoring.planner import Planner
from scoring.policies import PolicyName
from tests.scoring.fleet import BLOCK_SIZE, rank, spec

WORKERS = {
    "a": spec("a", model="m1", aliases=("prod", "m2"), adapters=("sql",)),
    "b": spec("b", model="m2", adapters=("sql", "poem"), engine=EngineKind.SGLANG),
}
IDS = list(range(5 * BLOCK_SIZE))
HELD = {  # by worker: (adapter, salt) → number of blocks announced
    "a": {(None, None): 1, ("sql", None): 2, (None, "s"): 3},
    "b": {(None, None): 4, ("poem", "s"): 5},
}


@pytest.fixture
def planner() -> Planner:
    index = FleetIndex()
    planner = Planner(index, policy=PolicyName.COST, rng=Random(1))
    for name, worker in WORKERS.items():
        index.add_worker(worker, 0.0)
        planner.add_worker(worker)
        index.set_trust(rank(name), Trust.EXACT, 0.0)
        for i, ((adapter, salt), count) in enumerate(HELD[name].items()):
            event = BlockStored(
                [100 * i + n for n in range(count)],
                None,
                IDS[: count * BLOCK_SIZE],
                BLOCK_SIZE,
                "GPU",
                lora_name=adapter,
                cache_salt=salt,
            )
            index.apply(rank(name), EventBatch(0.0, [event]), 0.0)
    return planner


@pytest.mark.parametrize(
    ("model", "salt", "expected"),
    [
        ("m1", None, {"a": 1}),
        ("prod", None, {"a": 1}),  # an alias is the model itself
        ("m1", "s", {"a": 3}),
        ("prod", "s", {"a": 3}),
        ("m1", "t", {"a": 0}),
        ("m2", None, {"b": 4}),  # the name of a model, though another worker calls itself so
        ("m2", "s", {"b": 0}),
        ("sql", None, {"a": 2}),  # the first worker that knows the adapter says whose it is
        ("sql", "s", {"a": 0}),
        ("poem", None, {"b": 0}),
        ("poem", "s", {"b": 5}),
        (None, None, {}),  # two models: nobody knows which is meant
        ("m3", None, {}),
    ],
)
def test_a_request_is_credited_what_its_own_namespace_holds(
    planner: Planner, model: str | None, salt: str | None, expected: dict[str, int]
) -> None:
    asked = PlanRequest("r", "chat", model, pack_tokens(IDS), 0.0, cache_salt=salt)
    decision = planner.explain(asked, 0.0)
    eligible = [one for one in decision.candidates if one.eligible]
    assert {one.worker: one.gpu_blocks for one in eligible} == expected


@pytest.mark.parametrize(
    ("model", "adapter", "salt", "expected"),
    [
        ("m2", "poem", "s", {"b": 5}),
        ("m2", "poem", None, {"b": 0}),
        ("m2:poem", None, "s", {"b": 5}),  # as SGLang has it
        ("m2:poem", "sql", "s", {"b": 5}),  # the name goes before the field
        ("m1:sql", None, None, {}),  # as vLLM has not
        ("m2:other", None, None, {}),
        ("m1", "sql", None, {"a": 2}),
        ("m1", "other", None, {"a": 0}),
    ],
)
def test_an_adapter_may_be_named_beside_its_model(
    planner: Planner, model: str, adapter: str | None, salt: str | None, expected: dict[str, int]
) -> None:
    asked = PlanRequest("r", "chat", model, pack_tokens(IDS), 0.0, adapter=adapter, cache_salt=salt)
    eligible = [one for one in planner.explain(asked, 0.0).candidates if one.eligible]
    assert {one.worker: one.gpu_blocks for one in eligible} == expected


def test_an_extra_key_shares_nothing_but_with_itself(planner: Planner) -> None:
    """No event tells it, so only what was served under it is known, and no report speaks against that."""

    def asked(extra_key: str | None, salt: str | None = None) -> PlanRequest:
        return PlanRequest(
            "r", "chat", "m1", pack_tokens(IDS), 0.0, extra_key=extra_key, cache_salt=salt
        )

    def credit(request: PlanRequest) -> tuple[int, int]:
        (one,) = (found for found in planner.explain(request, 2.0).candidates if found.eligible)
        return one.gpu_blocks, one.observed_blocks

    assert credit(asked("k")) == (0, 0)
    plan = planner.plan(asked("k"), 1.0)
    planner.first_byte(plan.plan_id, 1.5)
    planner.finish(plan.plan_id, Outcome(OutcomeKind.COMPLETED, cached_tokens=4 * BLOCK_SIZE), 2.0)
    assert credit(asked("k")) == (5, 5)
    assert credit(asked("k", "s")) == credit(asked("other")) == credit(asked("ks")) == (0, 0)
    assert credit(asked(None)) == (1, 0)
    assert credit(asked(None, "s")) == (3, 0)
