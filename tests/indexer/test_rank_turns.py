"""Ranks in turn: nobody is left out for long, and one that has gone is not told."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.limits import IndexLimits
from indexer.rank_turns import RankTurns
from tests.indexer.small_fleet import SmallFleet, blocks, prompt, rank

NAMES = st.sets(st.sampled_from("abcdefgh"))


def test_up_to_the_bound_every_turn_is_a_round() -> None:
    turns, all_three = RankTurns(3), {rank(name): name for name in "abc"}
    for _ in range(2):
        assert sorted(turns.take(all_three)) == ["a", "b", "c"]
        assert turns.is_round_over


@given(there=st.lists(NAMES, min_size=1), max_ranks=st.integers(1, 4))
def test_whoever_stays_has_one_turn_a_round(there: list[set[str]], max_ranks: int) -> None:
    turns = RankTurns(max_ranks)
    begun: set[str] | None = None
    told: list[str] = []
    stayed: set[str] = set()
    for names in there:
        if begun is None:
            begun, told, stayed = names, [], names
        stayed = stayed & names
        some = turns.take({rank(name): name for name in sorted(names)})
        assert len(some) <= max_ranks
        assert set(some) <= names & begun
        told += some
        if turns.is_round_over:
            assert len(told) == len(set(told))
            assert stayed <= set(told)
            begun = None


def test_what_time_changes_reaches_every_rank_of_a_large_fleet() -> None:
    names = [f"w{i}" for i in range(600)]
    fleet = SmallFleet(*names, limits=IndexLimits(predicted_ttl_s=30.0))
    for name in names:
        fleet.index.predict(rank(name), prompt(blocks(0, 2)), fleet.now)
    left = [1200]
    for _ in range(3):
        fleet.index.tick(fleet.now + 31.0)
        left.append(fleet.index.stats().predicted)
    assert left == [1200, 688, 176, 0]
