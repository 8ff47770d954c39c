"""The breaker over sequences of outcomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.breaker import Breaker, BreakerLimits, BreakerState
from router.health import HealthRecord
from scoring import OutcomeKind

LIMITS = BreakerLimits(num_faults=3, cool_down_s=5, max_cool_down_s=15)


def opened() -> Breaker:
    breaker = Breaker(LIMITS)
    for _ in range(3):
        breaker.record(OutcomeKind.WORKER_ERROR, now=0)
    return breaker


def state(breaker: Breaker, now: float) -> BreakerState:
    breaker.tick(now)
    breaker.check()
    return breaker.state


@pytest.mark.parametrize("kind", OutcomeKind)
def test_which_outcomes_open_it(kind: OutcomeKind) -> None:
    breaker = Breaker(LIMITS)
    for _ in range(20):
        breaker.record(kind, now=0)
    faults = {
        OutcomeKind.WORKER_ERROR,
        OutcomeKind.CONNECT_FAILED,
        OutcomeKind.BROKEN_OFF,
        OutcomeKind.TIMED_OUT,
    }
    assert (breaker.state is BreakerState.OPEN) is (kind in faults)


def test_faults_count_in_a_row_only() -> None:
    breaker = Breaker(LIMITS)
    for _ in range(10):
        breaker.record(OutcomeKind.WORKER_ERROR, now=0)
        breaker.record(OutcomeKind.WORKER_ERROR, now=0)
        breaker.record(OutcomeKind.BUSY, now=0)
    assert breaker.state is BreakerState.CLOSED


def test_half_open_after_the_cool_down_and_closed_by_one_success() -> None:
    breaker = opened()
    assert state(breaker, 4.9) is BreakerState.OPEN
    assert state(breaker, 5) is BreakerState.HALF_OPEN
    breaker.record(OutcomeKind.COMPLETED, now=6)
    assert state(breaker, 6) is BreakerState.CLOSED


def test_a_failed_trial_doubles_the_cool_down_up_to_the_maximum() -> None:
    breaker, now = opened(), 0.0
    for cool_down in (5, 10, 15, 15):
        assert state(breaker, now + cool_down - 0.1) is BreakerState.OPEN
        now += cool_down
        breaker.record(OutcomeKind.CONNECT_FAILED, now)
        assert breaker.state is BreakerState.OPEN
    now += 15
    breaker.record(OutcomeKind.COMPLETED, now)
    assert breaker.state is BreakerState.CLOSED


def test_stragglers_change_nothing_while_it_is_open() -> None:
    breaker = opened()
    breaker.record(OutcomeKind.COMPLETED, now=1)
    breaker.record(OutcomeKind.WORKER_ERROR, now=4)
    assert state(breaker, 4) is BreakerState.OPEN
    assert state(breaker, 5) is BreakerState.HALF_OPEN


@given(st.lists(st.tuples(st.sampled_from(OutcomeKind), st.floats(0, 30)), max_size=50))
def test_it_is_always_tried_again(steps: list[tuple[OutcomeKind, float]]) -> None:
    breaker, now = Breaker(LIMITS), 0.0
    for kind, wait in steps:
        now += wait
        breaker.record(kind, now)
        breaker.check()
    breaker.tick(now + LIMITS.max_cool_down_s)
    assert breaker.state is not BreakerState.OPEN


def test_health_needs_failures_in_a_row() -> None:
    record = HealthRecord(threshold=3)
    for _ in range(10):
        for is_ok in (False, False, True):
            record.record(is_ok=is_ok)
            assert record.is_healthy
            record.check()
    for _ in range(3):
        record.record(is_ok=False)
    assert not record.is_healthy
    record.check()
    record.record(is_ok=True)
    assert record.is_healthy
