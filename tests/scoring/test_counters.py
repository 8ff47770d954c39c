"""Sums of reuse: blocks as they are, and weighed by what a hit on their tier saves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.match import RankMatch
from indexer.trust import Trust
from protocol import DEFAULT_ENGINE_MODEL
from scoring.counters import ReuseSums
from scoring.rates import HitWeights, hit_weights, with_hit_weights

WEIGHTS = HitWeights(0.8, 0.4)


def match(gpu: int, host: int, storage: int) -> RankMatch:
    return RankMatch(Trust.EXACT, 16, gpu, host, storage)


@pytest.mark.parametrize(
    ("tiers", "reported_tokens", "matched", "reported"),
    [
        ((0, 0, 0), 0, 0.0, 0.0),
        ((4, 0, 0), 64, 4.0, 4.0),
        ((4, 5, 5), 14 * 16, 10.0, 10.0),
        ((4, 5, 5), 4 * 16, 10.0, 4.0),
        ((4, 5, 5), 6 * 16 + 15, 10.0, 5.6),
        ((4, 5, 5), 10 * 16, 10.0, 8.4),
        ((4, 5, 5), 20 * 16, 10.0, 16.0),
        ((0, 0, 0), 3 * 16, 0.0, 3.0),
        ((0, 10, 0), 10 * 16, 8.0, 8.0),
    ],
)
def test_blocks_count_what_a_hit_on_their_tier_saves(
    tiers: tuple[int, int, int], reported_tokens: int, matched: float, reported: float
) -> None:
    sums = ReuseSums(WEIGHTS)
    sums.add(match(*tiers), 1000, reported_tokens)
    assert sums.matched_weight == pytest.approx(matched)
    assert sums.reported_weight == pytest.approx(reported)


@given(
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)), st.integers(0, 10_000)
)
def test_weights_lie_between_those_of_the_slowest_tier_and_the_blocks(
    tiers: tuple[int, int, int], cached_tokens: int
) -> None:
    sums = ReuseSums(WEIGHTS)
    sums.add(match(*tiers), 1000, cached_tokens)
    for weight, blocks in (
        (sums.matched_weight, sums.matched_blocks),
        (sums.reported_weight, sums.reported_blocks),
    ):
        assert 0.4 * blocks - 1e-9 <= weight <= blocks + 1e-9


def test_the_default_weights() -> None:
    weights = hit_weights(DEFAULT_ENGINE_MODEL)
    assert list(weights) == pytest.approx([0.8, 0.4], abs=0.002)


@given(st.floats(0, 0.99), st.floats(0, 0.99))
def test_weights_are_those_that_were_chosen(host: float, storage: float) -> None:
    chosen = with_hit_weights(DEFAULT_ENGINE_MODEL, host=host, storage=storage)
    assert list(hit_weights(chosen)) == pytest.approx([host, storage])
