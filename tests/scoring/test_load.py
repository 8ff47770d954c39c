"""Leases: what is booked is given back, once, whatever happens in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.load import Fall, Lease, LoadBook, RankLoad
from tests.scoring.fleet import rank

W = rank("w")


def test_a_streamed_request_weighs_its_prompt_until_the_first_byte_then_one_decode() -> None:
    book = LoadBook(W)
    lease = book.open(1_000, 1_009)
    assert book.load(1e6) == RankLoad(W, 1, 1_000, 0)
    assert book.queued(1e6) == (1_000, 1_009)
    assert lease.begin_decode()
    assert book.load(1e6) == RankLoad(W, 1, 0, 1)
    assert lease.release()
    assert book.load(1e6) == RankLoad(W, 0, 0, 0)


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0.0, 1_000), (10.0, 1_000), (11.0, 750), (12.0, 500), (14.0, 0), (9e9, 0)],
)
def test_an_unstreamed_prefill_falls_in_a_straight_line(now: float, expected: int) -> None:
    book = LoadBook(W)
    book.open(1_000, 2_000, Fall(10.0, 14.0))
    assert book.queued(now) == (expected, 2 * expected)
    assert book.load(now).decode_requests == (1 if expected == 0 else 0)


def test_a_fall_that_takes_no_time_is_over_at_once() -> None:
    assert Fall(5.0, 5.0).remaining(4.9) == 1
    assert Fall(5.0, 5.0).remaining(5.0) == 0


def test_settling_moves_the_fallen_on_to_decode_and_leaves_the_others() -> None:
    book = LoadBook(W)
    fallen, falling, steady = (
        book.open(1, 1, Fall(0, 1)),
        book.open(2, 2, Fall(0, 9)),
        book.open(4, 4),
    )
    book.settle(1.0)
    assert book.load(0.0) == RankLoad(W, 3, 6, 1)
    assert book.falling() == [falling]
    book.check([fallen, falling, steady])


def test_release_is_idempotent_and_nothing_goes_negative() -> None:
    book = LoadBook(W)
    lease, other = book.open(5, 6), book.open(7, 8)
    assert [lease.release() for _ in range(3)] == [True, False, False]
    assert not lease.begin_decode()
    assert book.load(0) == RankLoad(W, 1, 7, 0)
    book.check([other])


falls = st.none() | st.tuples(st.floats(0, 10), st.floats(0, 10)).map(
    lambda pair: Fall(pair[0], pair[0] + pair[1])
)
steps = st.lists(
    st.tuples(st.sampled_from(["open", "decode", "release", "settle"]), st.integers(0, 9), falls)
)


@given(steps)
def test_whatever_the_order_the_sums_are_those_of_open_leases_and_return_to_zero(
    taken: list[tuple[str, int, Fall | None]],
) -> None:
    book = LoadBook(W)
    made: list[Lease] = []
    released: set[int] = set()
    for now, (verb, number, fall) in enumerate(taken):
        if verb == "open":
            made.append(book.open(number * 100, number * 110, fall))
        elif verb == "settle":
            book.settle(now)
        elif made and verb == "decode":
            made[number % len(made)].begin_decode()
        elif made:
            made[number % len(made)].release()
            released.add(number % len(made))
        book.check([lease for index, lease in enumerate(made) if index not in released])
        assert min(book.queued(now)) >= 0
    for lease in made:
        lease.release()
    assert book.load(0.0) == RankLoad(W, 0, 0, 0)
    assert book.queued(0.0) == (0, 0)
