"""When blocks left, against a memory without a bound."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import Ref
from indexer.departures import Departures

LIMIT = 4
batches = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=20)


@given(batches, st.integers(0, 9), st.integers(0, 20))
def test_a_bounded_memory_never_denies(steps: list[list[int]], ref: int, since: int) -> None:
    departures, left_at = Departures(LIMIT), dict[int, int]()
    for now, refs in enumerate(steps):
        departures.note([Ref(one) for one in refs], float(now))
        left_at |= dict.fromkeys(refs, now)
        departures.check()
        assert len(departures) <= 2 * (LIMIT + 3)
    has_left = left_at.get(ref, -1) >= since
    assert departures.may_have_left(Ref(ref), float(since)) or not has_left
    assert has_left or not departures.has_left(Ref(ref), float(since))
    if len(left_at) <= LIMIT and sum(map(len, steps)) <= LIMIT:
        assert departures.may_have_left(Ref(ref), float(since)) is has_left


def test_what_is_forgotten_leaves_its_time_behind() -> None:
    departures = Departures(2)
    for now in range(9):
        departures.note([Ref(now)], float(now))
    assert departures.has_left(Ref(8), 8.0)
    assert not departures.has_left(Ref(2), 2.0)
    assert departures.may_have_left(Ref(99), 2.0)
    assert not departures.may_have_left(Ref(99), 6.5)


def test_everything_may_have_left() -> None:
    departures = Departures(LIMIT)
    departures.note([Ref(1)], 1.0)
    departures.forget(2.0)
    assert len(departures) == 0
    assert departures.may_have_left(Ref(5), 2.0)
    assert not departures.may_have_left(Ref(1), 2.5)


def test_a_block_is_the_same_in_every_key_space() -> None:
    """A ref does not outlive the last holder in its space, the key does."""
    departures = Departures(LIMIT)
    departures.note([Ref(7 << 64 | 5)], 1.0)
    assert departures.has_left(Ref(8 << 64 | 5), 1.0)
