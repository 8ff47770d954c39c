"""Policies: how each orders the same options."""

from collections import Counter
from random import Random

import pytest

from scoring.decision import Reason
from scoring.policies import PolicyName, make_policy
from scoring.ranking import Option
from tests.scoring.weighed import names, row, weighed
from tests.scoring.weighed import option as of_row

ROWS = {name: row(name) for name in "abcd"}


def option(
    name: str, cost_ms: float = 0.0, *, load_ms: float = 0.0, held: int | None = 0, soon: int = 0
) -> Option:
    """One option on one of the four."""
    return of_row(ROWS[name], cost_ms, load_ms=load_ms, held=held, soon=soon)


OPTIONS = [
    option("a", 30.0, load_ms=1.0, held=0, soon=9),
    option("b", 10.0, load_ms=2.0, held=4),
    option("c", 20.0, load_ms=0.0, held=6),
]
BLIND = [option("a", 30.0, load_ms=2.0, held=None), option("b", 40.0, load_ms=1.0, held=None)]


@pytest.mark.parametrize(
    ("policy", "options", "expected", "reason"),
    [
        (PolicyName.COST, OPTIONS, "bca", Reason.LOWEST_COST),
        (PolicyName.LEAST_LOAD, OPTIONS, "cab", Reason.LEAST_LOAD),
        (PolicyName.PREFIX_ONLY, OPTIONS, "acb", Reason.LONGEST_PREFIX),
        (PolicyName.ROUND_ROBIN, OPTIONS, "abc", Reason.ROUND_ROBIN),
        (PolicyName.COST, BLIND, "ab", Reason.LOAD_ONLY),
        (PolicyName.LEAST_LOAD, BLIND, "ba", Reason.LEAST_LOAD),
        (PolicyName.PREFIX_ONLY, BLIND, "ba", Reason.LOAD_ONLY),
        (PolicyName.ROUND_ROBIN, BLIND, "ab", Reason.ROUND_ROBIN),
    ],
)
def test_order_and_reason(
    policy: PolicyName, options: list[Option], expected: str, reason: Reason
) -> None:
    ranking = make_policy(policy).order(weighed(options), Random(0), 0.0)
    assert names(ranking.options) == expected
    assert ranking.reason is reason


@pytest.mark.parametrize(
    "policy", [PolicyName.COST, PolicyName.LEAST_LOAD, PolicyName.PREFIX_ONLY, PolicyName.RANDOM]
)
def test_equals_share(policy: PolicyName) -> None:
    """Three equal ranks and one worse: a third each, but for ``random``, which knows no worse."""
    options = [option("d", 5.0, load_ms=5.0, held=0)]
    options += [option(name, 1.0, load_ms=1.0, held=2) for name in "abc"]
    rng, tally = Random(5), Counter[str]()
    for _ in range(600):
        ranking = make_policy(policy).order(weighed(options), rng, 0.0)
        assert sorted(names(ranking.options)) == list("abcd")
        tally[names(ranking.options)[0]] += 1
    expected = 150 if policy is PolicyName.RANDOM else 200
    assert all(abs(tally[name] - expected) < 45 for name in "abc"), tally
    assert tally["d"] == 0 or policy is PolicyName.RANDOM


def test_power_of_two_never_takes_the_busiest_and_spares_no_other() -> None:
    options = [option(name, load_ms=load) for name, load in zip("abcd", [3.0, 1.0, 2.0, 9.0])]  # noqa: B905
    rng, tally = Random(3), Counter[str]()
    for _ in range(600):
        ranking = make_policy(PolicyName.POWER_OF_TWO).order(weighed(options), rng, 0.0)
        assert sorted(names(ranking.options)) == list("abcd")
        assert ranking.options[0].price.queue_ms <= ranking.options[1].price.queue_ms
        assert ranking.reason is Reason.LESS_LOADED_OF_TWO
        tally[names(ranking.options)[0]] += 1
    expected = {"b": 300, "c": 200, "a": 100, "d": 0}
    assert all(abs(tally[name] - count) < 45 for name, count in expected.items()), tally
    assert tally["d"] == 0


@pytest.mark.parametrize("num_options", [2, 3])
def test_power_of_two_draws_among_equals(num_options: int) -> None:
    options = [option(name) for name in "abc"[:num_options]]
    rng, tally = Random(4), Counter[str]()
    for _ in range(600):
        ranking = make_policy(PolicyName.POWER_OF_TWO).order(weighed(options), rng, 0.0)
        tally[names(ranking.options)[0]] += 1
    assert all(abs(count - 600 / num_options) < 45 for count in tally.values()), tally


def test_a_tie_is_named_and_seeded() -> None:
    options = [option(name, 1.0) for name in "abcd"]
    first, second = (
        make_policy(PolicyName.COST).order(weighed(options), Random(9), 0.0) for _ in range(2)
    )
    assert first.reason is Reason.TIE
    assert names(first.options) == names(second.options)


def test_ordering_leaves_the_options_as_they_were() -> None:
    for policy in PolicyName:
        options = list(OPTIONS)
        make_policy(policy).order(weighed(options), Random(1), 0.0)
        assert options == OPTIONS


def test_round_robin_gives_every_rank_its_turn_whoever_comes_and_goes() -> None:
    policy = make_policy(PolicyName.ROUND_ROBIN)
    everyone = [option(name) for name in "abcd"]
    served = ""
    for present in ["abc", "abc", "abc", "abc", "abcd", "bd", "abcd", "abcd", "abcd"]:
        options = [one for one in everyone if str(one.row.rank.worker) in present]
        first = policy.order(weighed(options), Random(0), 0.0).options[0]
        policy.chose(weighed(options), first.row, 0.0)
        policy.check()
        served += str(first.row.rank.worker)
    assert served == "abcadbcad"
    policy.forget(ROWS["b"])
    assert names(policy.order(weighed(everyone), Random(0), 0.0).options) == "bcad"


def test_asking_round_robin_twice_takes_no_turn() -> None:
    policy = make_policy(PolicyName.ROUND_ROBIN)
    assert names(policy.order(weighed(OPTIONS), Random(0), 0.0).options) == "abc"
    assert names(policy.order(weighed(OPTIONS), Random(0), 0.0).options) == "abc"
