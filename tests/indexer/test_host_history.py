"""Copies on HOST beyond the first, against a plain count."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from indexer.host_history import HostHistory

LIMIT = 3
hashes = st.lists(st.integers(0, 4), max_size=5)


@given(st.lists(st.tuples(st.booleans(), hashes)))
def test_every_removal_uses_up_one_copy(steps: list[tuple[bool, list[int]]]) -> None:
    """Up to the bound; beyond it nothing is known, whatever comes."""
    history, copies, is_known = HostHistory(LIMIT), Counter[int](), True
    for is_store, some in steps:
        if is_store:
            history.add(some)
            copies.update(some)
        else:
            expected = [h for i, h in enumerate(some) if copies[h] <= some[:i].count(h)]
            assert history.use_up(some) == (expected if is_known else [])
            copies -= Counter(some)
        is_known = is_known and len(+copies) <= LIMIT
        assert history.is_known is is_known
        history.check()


def test_what_may_outlast_a_clear() -> None:
    history = HostHistory(LIMIT)
    history.outlast([])
    assert history.is_complete
    history.outlast([1, 2])
    assert (history.is_known, history.is_complete) == (True, False)
    assert history.use_up([1, 1, 3]) == [1, 3]
    history.begin()
    assert history.is_complete
    assert history.use_up([2]) == [2]


def test_what_is_lost_is_known_again_from_a_new_beginning_on() -> None:
    history = HostHistory(LIMIT)
    history.add([1])
    history.lose()
    assert (history.is_known, history.is_complete, history.use_up([2])) == (False, False, [])
    history.begin()
    assert history.use_up([1, 2]) == [1, 2]


def test_after_missed_stores_the_second_silent_return_is_strange() -> None:
    history = HostHistory(LIMIT)
    history.lose()
    assert history.is_partial
    history.note_gone([1])  # held, and removed
    assert history.use_up([1]) == []  # a copy from before, or a silent store
    assert history.use_up([1]) == [1]
    history.note_gone([1])  # stored and removed: one may come from before again
    assert history.use_up([1]) == []
    history.add([1])
    assert history.use_up([1]) == []
    assert history.use_up([1]) == [1]
    assert [history.use_up([2]) for _ in range(3)] == [[], [], [2]]
    history.lose()
    assert history.use_up([1]) == []
    history.check()


def test_what_left_is_remembered_for_a_while() -> None:
    history = HostHistory(LIMIT)
    history.lose()
    for block_hash in range(100):
        history.note_gone([block_hash])
        history.check()
    assert [history.use_up([0]) for _ in range(2)] == [[], []]


def test_beyond_the_bound_of_copies_not_even_returns_are_known() -> None:
    history = HostHistory(LIMIT)
    history.lose()
    history.note_gone([9])
    history.add(range(LIMIT + 1))
    assert not history.is_partial
    assert [history.use_up([9]) for _ in range(3)] == [[], [], []]
    history.begin()
    assert history.is_complete
