"""The switch between cache and load, at its thresholds."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.decision import Reason
from scoring.policies import PolicyName, make_policy
from scoring.ranking import Ranking
from tests.scoring.weighed import names, option, row, weighed

ROWS = {name: row(name) for name in "abcde"}


def order(held: list[int], in_flight: list[int], seed: int = 0) -> Ranking:
    options = [
        option(ROWS[name], held=blocks, in_flight=count)
        for name, blocks, count in zip("abcde", held, in_flight, strict=False)
    ]
    return make_policy(PolicyName.SWITCH).order(weighed(options), Random(seed), 0.0)


@pytest.mark.parametrize(
    ("held", "in_flight", "expected", "reason"),
    [
        ([0, 0, 10, 2], [0, 1, 2, 1], "cdab", Reason.LONGEST_PREFIX),
        ([0, 4, 4], [0, 9, 8], "cba", Reason.LONGEST_PREFIX),
        ([0, 0, 0], [3, 1, 2], "bca", Reason.LEAST_LOAD),
        ([9, 0], [64, 0], "ab", Reason.LONGEST_PREFIX),
        ([9, 0], [65, 0], "ba", Reason.IMBALANCED),
        ([9, 0], [195, 130], "ab", Reason.LONGEST_PREFIX),
        ([9, 0], [197, 131], "ba", Reason.IMBALANCED),
        ([0, 0, 10, 2, 0], [0, 1, 2, 1, 70], "abdce", Reason.IMBALANCED),
    ],
)
def test_order_and_reason(
    held: list[int], in_flight: list[int], expected: str, reason: Reason
) -> None:
    ranking = order(held, in_flight)
    assert (ranking.reason, names(ranking.options)[0]) == (reason, expected[0])
    assert sorted(names(ranking.options)) == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), min_size=2, max_size=5))
def test_never_both(ranks: list[tuple[int, int]]) -> None:
    """The best by one measure alone; the other one only breaks ties."""
    held, in_flight = (list(column) for column in zip(*ranks, strict=True))
    ranking = order(held, in_flight)
    best = ranking.options[0]
    assert best.match is not None
    if ranking.reason is Reason.LONGEST_PREFIX:
        assert best.match.gpu_blocks == max(held) > 0
        assert best.in_flight == min(n for h, n in ranks if h == max(held))
    else:
        assert best.in_flight == min(in_flight)


def test_predicted_blocks_do_not_count_and_equals_are_drawn() -> None:
    options = [option(ROWS["a"], held=3, soon=2), option(ROWS["b"], held=3), option(ROWS["c"])]
    policy = make_policy(PolicyName.SWITCH)
    firsts = {
        names(policy.order(weighed(options), Random(seed), 0.0).options)[0] for seed in range(20)
    }
    assert firsts == {"a", "b"}
