"""The situations in which routers go wrong, under each policy that looks at what ranks hold and are busy with."""

from collections import Counter

import pytest

from protocol import TokenBytes
from scoring.planner import Planner
from scoring.policies import PolicyName
from tests.scoring.fleet import (
    TruthIndex,
    load_rank,
    planner_of,
    rank,
    request,
    serve,
    tokens_of,
)

COST, LINEAR, SWITCH = PolicyName.COST, PolicyName.LINEAR, PolicyName.SWITCH
WEIGHING = [COST, LINEAR, SWITCH]
FOUR = ("a", "b", "c", "d")


def busy(planner: Planner, name: str, num_requests: int) -> None:
    """Requests on one worker that have 4 blocks each in use."""
    others = [rank(one) for one in FOUR if one != name]
    for number in range(num_requests):
        asked = request(tokens_of(64, ord(name) + 100 * number), excluded=others)
        planner.first_byte(planner.plan(asked, 0.0).plan_id, 0.0)


@pytest.mark.parametrize("policy", [*WEIGHING, PolicyName.LEAST_LOAD, PolicyName.POWER_OF_TWO])
@pytest.mark.parametrize("is_warm", [False, True])
def test_equal_ranks_share(policy: PolicyName, *, is_warm: bool) -> None:
    index = TruthIndex()
    planner = planner_of(index, *FOUR, policy=policy)
    shared = tokens_of(640)
    tally = Counter[str]()
    if is_warm:
        for name in FOUR:
            index.hold(rank(name), shared)
    for number in range(200):
        own = tokens_of(100, seed=number + 1)
        plan = planner.plan(request(TokenBytes(shared + own) if is_warm else own), float(number))
        tally[plan.rank.worker] += 1
        serve(planner, plan, number + 0.5)
    assert all(30 <= tally[name] <= 70 for name in FOUR), tally


@pytest.mark.parametrize("policy", WEIGHING)
def test_a_miss_goes_to_who_is_idle(policy: PolicyName) -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b", policy=policy)
    index.hold(rank("b"), tokens_of(16_000, seed=1))
    busy(planner, "a", 20)
    for number in range(10):
        plan = planner.plan(request(tokens_of(200, seed=9_000 + number)), float(number))
        assert plan.rank == rank("b")
        serve(planner, plan, number + 0.5)


@pytest.mark.parametrize(
    ("policy", "num_on_outlier", "chosen"),
    [(COST, 50, "c"), (COST, 70, "c"), (LINEAR, 50, "c"), (LINEAR, 70, "c"), (SWITCH, 50, "c"), (SWITCH, 70, "a")],
)  # fmt: skip
def test_an_outlier_switches_one_rival_off(
    policy: PolicyName, num_on_outlier: int, chosen: str
) -> None:
    index = TruthIndex()
    planner = planner_of(index, *FOUR, "e", policy=policy)
    prompt = tokens_of(200)
    index.hold(rank("c"), TokenBytes(prompt[: 160 * 4]))
    index.hold(rank("d"), TokenBytes(prompt[: 32 * 4]))
    for name, num_requests in [("b", 1), ("c", 2), ("d", 1), ("e", num_on_outlier)]:
        load_rank(planner, name, num_requests)
    assert planner.plan(request(prompt), 0.0).rank == rank(chosen)


@pytest.mark.parametrize("policy", WEIGHING)
def test_a_burst_of_one_prompt_does_not_herd(policy: PolicyName) -> None:
    """32 equal prompts in 20 ms, nothing announced in between: at most twice the mean on any rank."""
    for seed in range(5):
        planner = planner_of(TruthIndex(), *FOUR, policy=policy, seed=seed)
        asked = request(tokens_of(1_000))
        tally = Counter(planner.plan(asked, n * 0.0006).rank.worker for n in range(32))
        assert max(tally.values()) <= 16, tally


@pytest.mark.parametrize(("policy", "least"), [(COST, 10), (LINEAR, 10), (SWITCH, 5)])
def test_one_huge_prompt_weighs_what_it_costs_but_where_requests_are_counted(
    policy: PolicyName, least: int
) -> None:
    planner = planner_of(TruthIndex(), "a", "b", policy=policy)
    huge = planner.plan(request(tokens_of(100_000)), 0.0)
    elsewhere = 0
    for number in range(10):
        plan = planner.plan(request(tokens_of(100, number + 1)), 0.1 + number * 0.2)
        planner.first_byte(plan.plan_id, 0.2 + number * 0.2)
        elsewhere += plan.rank != huge.rank
    assert elsewhere >= least


@pytest.mark.parametrize(("policy", "least"), [(COST, 3), (LINEAR, 3), (SWITCH, 1)])
def test_a_popular_prefix_that_one_rank_holds_spreads_where_load_is_weighed(
    policy: PolicyName, least: int
) -> None:
    """60 long questions over a short text that ``a`` holds: its 48 tokens are no reason to wait for it."""
    index = TruthIndex()
    planner = planner_of(index, *FOUR, policy=policy)
    text = tokens_of(48)
    index.hold(rank("a"), text)
    asked = [request(TokenBytes(text + tokens_of(1_000, number + 1))) for number in range(60)]
    tally = Counter(planner.plan(one, 0.0).rank.worker for one in asked)
    assert sum(count >= 5 for count in tally.values()) >= least
    assert (len(tally) == 1) is (policy is SWITCH), tally
