"""The linear cost in blocks: its arithmetic, and the blocks that are in use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import Tier, TokenBytes, WorkerId
from scoring.decision import Reason
from scoring.policies import PolicyName
from tests.scoring.fleet import (
    COMPLETED,
    TruthIndex,
    planner_of,
    rank,
    request,
    serve,
    spec,
    tokens_of,
)

PROMPT = tokens_of(160)  # 10 blocks


def test_credit_by_tier() -> None:
    """10 blocks to prefill, less 4, 3 or 1 of them."""
    index = TruthIndex()
    for name, tier in [("a", Tier.STORAGE), ("b", Tier.HOST), ("c", Tier.GPU)]:
        index.hold(rank(name), TokenBytes(PROMPT[: 64 * 4]), tier)
    planner = planner_of(index, "none", "a", "b", "c", policy=PolicyName.LINEAR)
    decision = planner.explain(request(PROMPT), 0.0)
    assert [one.worker for one in decision.candidates] == ["c", "b", "a", "none"]
    assert decision.reason is Reason.FEWEST_BLOCKS


@pytest.mark.parametrize(
    ("num_held", "num_other_tokens", "chosen"),
    [(9, 7 * 16, "warm"), (9, 9 * 16 - 1, "warm"), (9, 10 * 16, "cold"), (2, 3 * 16, "cold")],
)
def test_a_block_in_use_weighs_as_much_as_one_to_prefill(
    num_held: int, num_other_tokens: int, chosen: str
) -> None:
    index = TruthIndex()
    index.hold(rank("warm"), TokenBytes(PROMPT[: num_held * 16 * 4]))
    planner = planner_of(index, "cold", "warm", policy=PolicyName.LINEAR)
    other = request(tokens_of(num_other_tokens, 7), excluded=[rank("cold")])
    plan = planner.plan(other, 0.0)
    planner.first_byte(plan.plan_id, 0.0)  # prefilled: it decodes
    assert planner.explain(request(PROMPT), 0.0).candidates[0].worker == chosen
    planner.finish(plan.plan_id, COMPLETED, 1.0)
    assert planner.explain(request(PROMPT), 1.0).candidates[0].worker == "warm"


def test_prefill_that_is_queued_counts_until_the_first_token() -> None:
    planner = planner_of(TruthIndex(), "a", "b", policy=PolicyName.LINEAR)
    huge = planner.plan(request(tokens_of(100_000)), 0.0)
    for number in range(10):
        plan = planner.plan(request(tokens_of(100, number + 1)), 0.1)
        assert plan.rank != huge.rank
        serve(planner, plan, 0.2)


def test_a_block_that_requests_share_is_in_use_once() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b", policy=PolicyName.LINEAR)
    plans = [planner.plan(request(PROMPT, excluded=[rank("b")]), 0.0) for _ in range(5)]
    for plan in plans:
        planner.first_byte(plan.plan_id, 0.0)
    planner.check()
    again = planner.explain(request(PROMPT), 0.0)
    assert again.chosen is not None
    assert again.chosen.worker == "a"  # 10 in use with it, and nothing to prefill; b: 10 and 10


def test_equal_ranks_are_drawn_from() -> None:
    planner = planner_of(TruthIndex(), *"abcd", policy=PolicyName.LINEAR)
    plans = [planner.plan(request(tokens_of(100, number)), 0.0) for number in range(4)]
    assert {plan.rank.worker for plan in plans} == set("abcd")
    assert plans[0].decision.reason is Reason.TIE


def test_an_index_that_fails_leaves_load() -> None:
    index = TruthIndex(fault=RuntimeError("broken"))
    planner = planner_of(index, "a", "b", policy=PolicyName.LINEAR)
    plan = planner.plan(request(PROMPT), 0.0)
    assert plan.decision.reason is Reason.LOAD_ONLY
    planner.finish(plan.plan_id, COMPLETED, 0.0)
    planner.check()


actions = st.tuples(st.sampled_from(["plan", "finish", "leave", "come", "grow"]), st.integers(0, 9))


@settings(deadline=None, max_examples=60)
@given(st.lists(actions, max_size=30))
def test_what_is_in_use_ends_with_its_requests(history: list[tuple[str, int]]) -> None:
    """Whoever leaves and comes back meanwhile, and whatever block size is known by then."""
    index, open_plans = TruthIndex(), []
    planner = planner_of(index, "a", "b", policy=PolicyName.LINEAR)
    for action, number in history:
        name = "ab"[number % 2]
        if action == "plan" and planner.workers():
            prompt = request(tokens_of(16 * number, number % 3))
            open_plans.append(planner.plan(prompt, 0.0).plan_id)
        elif action == "finish" and open_plans:
            planner.finish(open_plans.pop(number % len(open_plans)), COMPLETED, 0.0)
        elif action == "leave":
            planner.remove_worker(WorkerId(name))
        elif action == "come":
            planner.add_worker(spec(name))
        elif action == "grow":
            index.block_size = 16 + 16 * (number % 3)
        planner.check()
    for plan_id in open_plans:
        planner.finish(plan_id, COMPLETED, 0.0)
    planner.check()
    policy = planner._policy
    assert not policy._uses  # type: ignore[attr-defined]
    assert not any(policy._active.values())  # type: ignore[attr-defined]
