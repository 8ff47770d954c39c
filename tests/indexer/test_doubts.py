"""Losses put claims in doubt a few at a time, and it makes no difference but to the time it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import Ref
from indexer.doubts import Doubts

refs = st.lists(st.integers(1, 12), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["claim", "withdraw", "confirm"]), refs),
        st.tuples(st.sampled_from(["loss", "proceed"]), st.just(list[int]())),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 4))
def test_any_order_of_losses_and_confirmations(
    steps: list[tuple[str, list[int]]], count: int
) -> None:
    """Against an oracle that enters all at once. With more than two losses under way some are kept for longer."""
    doubts, claimed, expected = Doubts(), set[Ref](), dict[Ref, float]()
    for now, (verb, numbers) in enumerate(steps):
        some = [Ref(number) for number in numbers]
        match verb:
            case "claim":
                claimed.update(some)
                doubts.confirm(some)
            case "withdraw":
                claimed.difference_update(some)
                doubts.confirm(some)
            case "confirm":
                doubts.confirm(some)
            case "loss":
                held: list[Ref | None] = [None, *claimed]
                doubts.note(lambda: held, claimed.__contains__, float(now))  # noqa: B023
                for ref in claimed:
                    expected.setdefault(ref, float(now))
            case _:
                doubts.proceed(count)
        if verb not in ("loss", "proceed"):
            for ref in some:
                expected.pop(ref, None)
        doubts.check(claimed)
    doubts.proceed(10_000)
    doubts.check(claimed)
    assert len(doubts) == len(expected)
    for ref, until in expected.items():
        assert not doubts.is_overdue(ref, until - 0.5)
        assert doubts.is_overdue(ref, float(len(steps)))


@pytest.mark.parametrize("num_losses", [1, 2, 5])
def test_what_is_noted_is_entered_a_few_at_a_time(num_losses: int) -> None:
    doubts, claimed = Doubts(), [Ref(number) for number in range(100)]
    for loss in range(num_losses):
        doubts.note(lambda: list[Ref | None](claimed), lambda _: True, 10.0 + loss)
    assert len(doubts) == 100
    doubts.proceed(30)
    assert sum(doubts.is_overdue(ref, 10.0) for ref in claimed) == 30
    doubts.confirm(claimed[:90])
    doubts.proceed(1_000)
    assert [ref for ref in claimed if doubts.is_overdue(ref, 10.0)] == claimed[90:]
    assert (len(doubts), doubts.has_overdue(9.9), doubts.has_overdue(10.0)) == (10, False, True)
    doubts.clear()
    assert not doubts


def test_a_second_loss_doubts_what_became_sure_since_the_first() -> None:
    doubts, claimed = Doubts(), [Ref(1), Ref(2)]
    doubts.note(lambda: list[Ref | None](claimed), lambda _: True, 10.0)
    doubts.confirm([Ref(2), Ref(3)])
    doubts.note(lambda: pytest.fail("it is known already"), lambda ref: ref != 3, 20.0)
    doubts.proceed(10)
    assert [doubts.is_overdue(Ref(ref), 10.0) for ref in (1, 2, 3)] == [True, False, False]
    assert [doubts.is_overdue(Ref(ref), 20.0) for ref in (1, 2, 3)] == [True, True, False]
