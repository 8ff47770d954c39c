"""The budget of repeated attempts, beside an oracle that remembers every one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.retry_budget import WINDOW_S, RetryBudget, RetryLimits


def spent_at_once(budget: RetryBudget, now: float, num_in_flight: int = 0) -> int:
    """How many it allows at a moment."""
    num = 0
    while budget.left(now, num_in_flight) >= 1:
        budget.spend(now)
        budget.check()
        num += 1
    return num


@pytest.mark.parametrize(
    ("limits", "num_begun", "num_in_flight", "expected"),
    [
        (RetryLimits(), 0, 0, 100),
        (RetryLimits(), 1_000, 10, 300),
        (RetryLimits(), 10, 1_000, 300),
        (RetryLimits(share=0.5, floor=0), 3, 0, 1),
        (RetryLimits(share=0.5, floor=0), 1, 0, 0),
        (RetryLimits(share=0, floor=0), 1_000, 1_000, 0),
    ],
)
def test_a_floor_and_a_share(
    limits: RetryLimits, num_begun: int, num_in_flight: int, expected: int
) -> None:
    budget = RetryBudget(limits)
    for _ in range(num_begun):
        budget.began(5_000.5)
    assert spent_at_once(budget, 5_000.5, num_in_flight) == expected


def test_it_comes_back_with_time() -> None:
    budget = RetryBudget(RetryLimits(share=0, floor=2))
    assert spent_at_once(budget, 100.0) == 2
    assert spent_at_once(budget, 100.0 + WINDOW_S - 1) == 0
    assert spent_at_once(budget, 100.0 + WINDOW_S) == 2
    assert spent_at_once(budget, 1e9) == 2


def test_what_was_not_repeated_after_all_is_given_back_while_it_counts() -> None:
    budget = RetryBudget(RetryLimits(share=0, floor=2))
    assert spent_at_once(budget, 100.0) == 2
    budget.give_back(100.0)
    budget.check()
    assert spent_at_once(budget, 105.0) == 1
    assert spent_at_once(budget, 112.0) == 1  # one of the two counts no more
    budget.give_back(100.0)
    budget.check()
    assert spent_at_once(budget, 112.0) == 0


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 4)), max_size=200),
    st.floats(0, 1),
    st.integers(0, 5),
    st.floats(0, 1e6),
)
def test_in_any_window_no_more_than_it_says(
    steps: list[tuple[bool, float]], share: float, floor: int, now: float
) -> None:
    budget = RetryBudget(RetryLimits(share, floor))
    begun: list[int] = []
    spent: list[int] = []
    for begins, pause in steps:
        now += pause
        if begins:
            budget.began(now)
            begun.append(int(now))
        oldest = int(now) - WINDOW_S + 1
        num_begun = sum(second >= oldest for second in begun)
        num_spent = sum(second >= oldest for second in spent)
        assert budget.left(now, 0) == pytest.approx(floor + share * num_begun - num_spent)
        if budget.left(now, 0) >= 1:
            budget.spend(now)
            spent.append(int(now))
        budget.check()
