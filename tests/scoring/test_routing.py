"""Where requests go in the situations that go wrong elsewhere: herding, scattering, switching."""

from collections import Counter

import pytest

from protocol import Tier, TokenBytes, WorkerId
from scoring.brain import Outcome, OutcomeKind, Plan
from scoring.decision import Exclusion, Reason
from scoring.planner import Planner
from scoring.policies import PolicyName
from scoring.speeds import MIN_SAMPLES
from tests.scoring.fleet import (
    COMPLETED,
    TruthIndex,
    joined,
    load_rank,
    planner_of,
    rank,
    request,
    serve,
    spec,
    tokens_of,
)

FOUR = ("a", "b", "c", "d")


def tally(plans: list[Plan]) -> Counter[str]:
    return Counter(str(plan.rank.worker) for plan in plans)


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_equal_ranks_share_sequential_requests(seed: int, *, is_warm: bool) -> None:
    """200 requests one after the other, each done before the next: 30 to 70 for each of four."""
    index = TruthIndex()
    planner = planner_of(index, *FOUR, seed=seed)
    shared = tokens_of(640)
    if is_warm:
        for name in FOUR:
            index.hold(rank(name), shared)
    plans = []
    for number in range(200):
        own = tokens_of(100, seed=number + 1)
        plans.append(planner.plan(request(joined(shared, own) if is_warm else own), float(number)))
        serve(planner, plans[-1], number + 0.5)
    assert all(30 <= tally(plans)[name] <= 70 for name in FOUR), tally(plans)


def test_equal_ranks_still_share_once_speeds_are_learned() -> None:
    """Noise in what was learned is no reason to prefer anyone."""
    planner = planner_of(TruthIndex(), *FOUR)
    for number in range(40 * MIN_SAMPLES):
        plan = planner.plan(request(tokens_of(2_000, number)), number * 9.0)
        planner.first_byte(plan.plan_id, number * 9.0 + 0.2 + number * 7 % 11 / 200)
        planner.finish(plan.plan_id, COMPLETED, number * 9.0 + 1)
    assert {worker.num_speed_samples for worker in planner.workers()} == {32}
    plans = []
    for number in range(200):
        plans.append(planner.plan(request(tokens_of(100, number)), 1e5 + number))
        serve(planner, plans[-1], 1e5 + number + 0.5)
    assert all(30 <= tally(plans)[name] <= 70 for name in FOUR), tally(plans)


def test_a_miss_goes_to_who_is_idle_however_much_the_cache_of_another_holds() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    index.hold(rank("a"), tokens_of(160))
    index.hold(rank("b"), tokens_of(16_000, seed=1))
    load_rank(planner, "a", 20)
    for number in range(10):
        plan = planner.plan(request(tokens_of(200, seed=number + 2)), float(number))
        assert plan.rank == rank("b")
        serve(planner, plan, number + 0.5)


def test_an_outlier_does_not_switch_cache_awareness_off() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b", "c", "d", "e")
    prompt = tokens_of(200)
    index.hold(rank("c"), TokenBytes(prompt[: 160 * 4]))
    index.hold(rank("d"), TokenBytes(prompt[: 32 * 4]))
    for name, num_requests in [("b", 1), ("c", 2), ("d", 1), ("e", 50)]:
        load_rank(planner, name, num_requests)
    decision = planner.plan(request(prompt), 0.0).decision
    assert decision.chosen is not None
    assert decision.chosen.worker == "c"
    assert [one.worker for one in decision.candidates][-1] == "e"


def test_load_outweighs_a_hit_once_it_costs_more() -> None:
    """The hit saves 20 ms; five requests in flight cost as much."""
    index = TruthIndex()
    planner = planner_of(index, "a", "c")
    prompt = tokens_of(200)
    index.hold(rank("c"), TokenBytes(prompt[: 160 * 4]))
    load_rank(planner, "c", 4)
    assert planner.explain(request(prompt), 0.0).candidates[0].worker == "c"
    load_rank(planner, "c", 2)
    assert planner.explain(request(prompt), 0.0).candidates[0].worker == "a"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("num_tokens", [100, 1_000, 20_000])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_burst_of_one_prompt_does_not_herd(
    seed: int, num_tokens: int, *, is_streaming: bool
) -> None:
    """32 equal prompts in 20 ms, nothing heard in between: at most twice the mean on any rank."""
    planner = planner_of(TruthIndex(), *FOUR, seed=seed)
    prompt = tokens_of(num_tokens)
    plans = [
        planner.plan(request(prompt, is_streaming=is_streaming), number * 0.0006)
        for number in range(32)
    ]
    assert max(tally(plans).values()) <= 16, tally(plans)
    for plan in plans:
        serve(planner, plan, 0.5)
    later = [planner.plan(request(prompt), 1.0) for _ in range(16)]
    assert len(tally(later)) == 4


def test_a_burst_of_conversations_does_not_scatter() -> None:
    """Second turns of four conversations, sent before any event: each goes where its first went."""
    planner = planner_of(TruthIndex(), *FOUR)
    first_turns = [tokens_of(2_000, seed) for seed in range(4)]
    firsts = [planner.plan(request(turn), 0.0) for turn in first_turns]
    for plan in firsts:
        planner.first_byte(plan.plan_id, 0.3)
    for first, turn, seed in zip(firsts, first_turns, range(4), strict=True):
        second = planner.plan(request(joined(turn, tokens_of(50, seed + 9))), 0.4)
        assert second.rank == first.rank


@pytest.mark.parametrize("seed", range(5))
def test_one_huge_prompt_weighs_what_it_costs(seed: int) -> None:
    planner = planner_of(TruthIndex(), "a", "b", seed=seed)
    huge = planner.plan(request(tokens_of(100_000)), 0.0)

    def send_ten(start: float) -> list[Plan]:
        plans = []
        for number in range(10):
            now = start + number * 0.2
            prompt = tokens_of(100, seed=int(now * 10) + 1)
            plans.append(planner.plan(request(prompt), now))
            planner.first_byte(plans[-1].plan_id, now + 0.1)
        return plans

    during = send_ten(0.1)
    assert huge.rank.worker not in tally(during)
    for plan in during:
        planner.finish(plan.plan_id, COMPLETED, 5.0)
    planner.first_byte(huge.plan_id, 10.0)
    after = send_ten(10.1)
    assert min(tally(after).values()) >= 4
    assert len(tally(after)) == 2


def test_a_host_hit_beats_cold_and_a_gpu_hit_beats_a_host_hit() -> None:
    prompt = tokens_of(70)
    index = TruthIndex()
    planner = planner_of(index, "cold", "warm", "hot")
    index.hold(rank("warm"), prompt, Tier.HOST)
    index.hold(rank("hot"), prompt)
    order = [one.worker for one in planner.explain(request(prompt), 0.0).candidates]
    assert order == ["hot", "warm", "cold"]


def test_ranks_of_one_worker_are_told_apart() -> None:
    index = TruthIndex()
    planner = planner_of(index)
    planner.add_worker(spec("a", num_ranks=3))
    prompt = tokens_of(300)
    index.hold(rank("a", 1), prompt)
    plan = planner.plan(request(prompt), 0.0)
    assert plan.rank == rank("a", 1)
    assert plan.url == "http://a"
    assert [load.in_flight for load in planner.rank_loads(0.0)] == [0, 1, 0]


def test_a_broken_worker_with_the_best_prefix_is_tried_once_and_left_once_excluded() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    prompt = tokens_of(325)
    index.hold(rank("a"), prompt)
    first = planner.plan(request(prompt), 0.0)
    assert first.rank == rank("a")
    planner.finish(first.plan_id, Outcome(OutcomeKind.WORKER_ERROR), 0.1)
    retry = planner.plan(request(prompt, excluded=[first.rank]), 0.1)
    assert retry.rank == rank("b")
    assert retry.decision.reason is Reason.ONLY_CANDIDATE
    serve(planner, retry, 0.2)
    planner.set_excluded(WorkerId("a"), Exclusion.BREAKER_OPEN)
    for number in range(50):
        plan = planner.plan(request(prompt), 1.0 + number)
        assert plan.rank == rank("b")
        serve(planner, plan, 1.5 + number)
    planner.set_excluded(WorkerId("a"), None)
    index.claims[rank("b")].clear()
    index.predicted.clear()
    assert planner.plan(request(prompt), 99.0).rank == rank("a")


@pytest.mark.parametrize("policy", PolicyName)
def test_untokenized_requests_balance_under_every_policy_that_looks_at_load(
    policy: PolicyName,
) -> None:
    planner: Planner = planner_of(TruthIndex(), *FOUR, policy=policy)
    plans = [planner.plan(request(None), 0.0) for _ in range(100)]
    counts = tally(plans)
    if policy is PolicyName.RANDOM:
        assert max(counts.values()) < 45
    elif policy is PolicyName.POWER_OF_TWO:
        assert max(counts.values()) <= 28
    else:
        assert set(counts.values()) == {25}
    for plan in plans:
        planner.finish(plan.plan_id, COMPLETED, 1.0)
    assert {load.in_flight for load in planner.rank_loads(1.0)} == {0}
