"""Numbers that the process we follow cannot have come to: of another process, or none of ours."""

import pytest

from indexer import ResetCause, StreamLimits
from tests.indexer.stream_script import heard, play

FAR = (1 << 63) - 1
LIMITS = StreamLimits(max_jump=100)

SCRIPTS = {
    "none of ours, once": f"""
        live 0 1        -> apply 0, apply 1
        live {FAR}      -> replay 1             | rebuilding
        reply 1         ->
        end             ->                      | exact
        live 2          -> apply 2              | exact
    """,
    "none of ours, during a replay": f"""
        live 0          -> apply 0
        live 2          -> replay 1
        live {FAR}      ->
        reply 1         -> apply 1
        end             -> apply 2              | exact
    """,
    "none of ours, again and again": f"""
        live 0          -> apply 0
        live {FAR}      -> replay 0
        reply 0         ->
        end             ->                      | exact
        live {FAR}      -> replay 0
        reply 0         ->
        end             ->                      | exact
    """,
    "the number at the bound may be of the same process": """
        live 0          -> apply 0
        live 101        -> replay 1
        end             -> lost 1-100, apply 101 | degraded
    """,
    "another process, far ahead": """
        live 0 1        -> apply 0, apply 1
        live 500b       -> replay 1
        reply 499b      -> forget restarted, replay 0
        reply 499b 500b -> apply 499, apply 500
        end             ->                      | joined
    """,
    "another process, far ahead, without a buffer": """
        live 0 1        -> apply 0, apply 1
        live 500b       -> replay 1
        end             -> forget restarted, replay 0
        end             ->                      | exact
        live 501b       -> replay 0
        end             -> apply 501            | joined
    """,
    "another process, and nobody answers": """
        live 0 1        -> apply 0, apply 1
        live 500b       -> replay 1
        fail            -> lost 2-              | degraded
        live 501b       -> forget restarted, replay 0
        fail            -> apply 501            | joined
        live 502b       -> apply 502
    """,
    "held before anything was known": f"""
        connected       -> replay 0
        live 3 {FAR}    ->
        fail            -> apply 3              | joined
        live 4          -> apply 4
    """,
    "a replay that jumps": f"""
        live 0          -> apply 0
        live 3          -> replay 1
        reply 1 {FAR}   -> apply 1, forget restarted, replay 0
        reply 0 1       -> apply 0, apply 1
        end             ->                      | exact
    """,
}

WITHOUT_REPLAY = {
    "a jump is a restart": f"""
        live 0 1        -> apply 0, apply 1
        live {FAR}      -> forget restarted, apply {FAR} | joined
        live 2          -> forget restarted, apply 2 | joined
        live 3          -> apply 3
    """,
    "first heard far from 0": f"""
        live {FAR}      -> apply {FAR}          | joined
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    _verify_counters(play(script, limits=LIMITS).counters.lost_batches)


@pytest.mark.parametrize("script", WITHOUT_REPLAY.values(), ids=WITHOUT_REPLAY)
def test_without_replay(script: str) -> None:
    counters = play(script, has_replay=False, limits=LIMITS).counters
    _verify_counters(counters.lost_batches)
    _verify_counters(counters.missed_before_join)


def _verify_counters(num_batches: int) -> None:
    assert num_batches <= 2 * LIMITS.max_jump, "one number has inflated it"


def test_a_far_number_is_counted_as_what_it_is() -> None:
    counters = play(SCRIPTS["none of ours, once"], limits=LIMITS).counters
    assert (counters.implausible, counters.gaps, counters.losses) == (1, 0, 0)
    counters = play(WITHOUT_REPLAY["a jump is a restart"], has_replay=False, limits=LIMITS).counters
    assert counters.resets == {ResetCause.FAR_NUMBER: 1, ResetCause.LOWER_NUMBER: 1}
    assert (counters.implausible, counters.losses) == (1, 0)


def test_whatever_the_number_a_stream_goes_on() -> None:
    """Any two numbers in a row, with and without replay: no loss beyond the bound, and no fault."""
    corners = [0, 1, 99, 100, 101, 102, 1 << 31, 1 << 48, FAR - 1, FAR]
    for first in corners:
        for second in corners:
            stream = play(f"live {first} -> apply {first}", has_replay=False, limits=LIMITS)
            stream.on_live(heard(str(second)), 0.0)
            stream.on_live(heard(f"{second}b"), 0.0)
            stream.check()
            _verify_counters(stream.counters.lost_batches)
