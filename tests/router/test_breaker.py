"""The breaker over sequences of outcomes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.breaker import Breaker, BreakerLimits, BreakerState
from router.health import HealthRecord
from scoring import OutcomeKind

LIMITS = BreakerLimits(num_faults=3, cool_down_s=5, max_cool_down_s=15)


def opened(kind: OutcomeKind = OutcomeKind.WORKER_ERROR) -> Breaker:
    breaker = Breaker(LIMITS)
    for _ in range(3):
        breaker.record(kind, now=0)
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


def test_why_it_is_open_is_said_as_long_as_it_is() -> None:
    breaker = opened(OutcomeKind.TIMED_OUT)
    assert breaker.why_open == "3 requests in a row failed: no answer in time"
    breaker.tick(5)
    breaker.record(OutcomeKind.COMPLETED, now=5)
    assert breaker.why_open is None


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


EARLY = LIMITS.cool_down_s / 20


@pytest.mark.parametrize("kind", [OutcomeKind.CONNECT_FAILED, OutcomeKind.WORKER_ERROR])
def test_a_good_probe_half_opens_what_could_not_be_reached(kind: OutcomeKind) -> None:
    breaker = opened(kind)
    assert breaker.awaits_probe is (kind is OutcomeKind.CONNECT_FAILED)
    breaker.probed(EARLY, is_ok=True)
    was_unreachable = kind is OutcomeKind.CONNECT_FAILED
    assert (breaker.state is BreakerState.HALF_OPEN) is was_unreachable
    breaker = opened(kind)
    breaker.probed(EARLY, is_ok=False)
    assert state(breaker, 1) is BreakerState.OPEN
    assert breaker.awaits_probe
    breaker.probed(1, is_ok=True)
    assert state(breaker, 1) is BreakerState.HALF_OPEN


def test_a_worker_that_is_well_for_probes_alone_is_tried_ever_less() -> None:
    breaker, now, opened_at = opened(OutcomeKind.CONNECT_FAILED), 0.0, [0.0]
    while now < 300:
        now += 0.05
        breaker.probed(now, is_ok=True)
        if breaker.state is BreakerState.HALF_OPEN:
            breaker.record(OutcomeKind.CONNECT_FAILED, now)
            opened_at.append(now)
        breaker.check()
    pauses = [after - before for before, after in pairwise(opened_at)]
    assert pauses == pytest.approx([5 / 20, 10 / 20, *[15 / 20] * (len(pauses) - 2)], abs=0.06)


def test_trials_are_bounded_and_change_nothing_where_they_fail() -> None:
    breaker, now = opened(), 0.0
    while now < 4.9:
        if breaker.may_try(now):
            breaker.tried(now)
            breaker.record(OutcomeKind.CONNECT_FAILED, now)
        assert state(breaker, now) is BreakerState.OPEN
        now += 0.01
    assert 15 <= breaker.num_trials <= 20
    assert state(breaker, 5) is BreakerState.HALF_OPEN
    assert not breaker.may_try(6)


def test_a_trial_that_succeeds_closes_it() -> None:
    breaker = opened()
    assert not breaker.may_try(EARLY / 2)
    assert breaker.may_try(EARLY)
    breaker.tried(EARLY)
    breaker.record(OutcomeKind.COMPLETED, 1)
    assert state(breaker, 1) is BreakerState.CLOSED
    assert not breaker.may_try(2)


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
