"""When a stream looks behind a silence."""

from indexer.silence_clock import SilenceClock


def test_nothing_is_due_before_anything_was_heard() -> None:
    assert not SilenceClock(1.0, 10.0).begin_if_due(1e9)


def test_a_look_is_due_after_a_silence_and_again_after_another() -> None:
    clock = SilenceClock(1.0, 10.0)
    clock.since = 5.0
    assert [clock.begin_if_due(now) for now in (5.9, 6.0, 6.9, 7.0)] == [False, True, False, True]


def test_what_is_heard_puts_the_look_off() -> None:
    clock = SilenceClock(1.0, 10.0)
    clock.since = 5.0
    clock.since = 5.9
    assert not clock.begin_if_due(6.5)


def test_looks_are_seldom_after_one_that_found_nothing_and_soon_after_other_questions() -> None:
    clock = SilenceClock(1.0, 10.0)
    clock.settle(0.0, is_routine=True)
    assert not clock.begin_if_due(9.9)
    clock.settle(10.0, is_routine=False)
    assert clock.begin_if_due(11.0)
