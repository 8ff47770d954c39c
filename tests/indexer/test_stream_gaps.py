"""Numbers missing on the live socket: asked for again, applied in order, or lost."""

import pytest

from indexer import StreamLimits
from tests.indexer.stream_script import SMALL, play

SCRIPTS = {
    "in order": """
        live 0          -> apply 0              | exact
        live 1          -> apply 1              | exact
    """,
    "a gap is replayed from the first missing number": """
        live 0 1 2 3 4  -> apply 0, apply 1, apply 2, apply 3, apply 4
        live 8          -> replay 5             | rebuilding
        reply 5 6 7 8   -> apply 5, apply 6, apply 7, apply 8
        end             ->                      | exact
        live 9          -> apply 9              | exact
    """,
    "live messages are held during a replay": """
        live 0          -> apply 0
        live 3          -> replay 1
        live 4 5        ->                      | rebuilding
        reply 1 2       -> apply 1, apply 2
        end             -> apply 3, apply 4, apply 5 | exact
    """,
    "a replay overlaps what is held": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 3          ->
        reply 1 2 3     -> apply 1, apply 2, apply 3
        end             ->                      | exact
        live 3          ->
        live 4          -> apply 4
    """,
    "replayed numbers not above the last applied are dropped": """
        live 0 1        -> apply 0, apply 1
        live 3          -> replay 2
        reply 0 1 2 2   -> apply 2
        end             -> apply 3              | exact
    """,
    "a truncated buffer is a loss": """
        live 0 1        -> apply 0, apply 1
        live 8          -> replay 2
        reply 7         -> lost 2-6, apply 7
        reply 8         -> apply 8
        end             ->                      | degraded
    """,
    "a buffer that holds nothing is a loss": """
        live 0          -> apply 0
        live 3          -> replay 1
        end             -> lost 1-2, apply 3    | degraded
    """,
    "a gap within a replay is asked for after its end": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 5          ->
        reply 1 2       -> apply 1, apply 2
        end             -> replay 3             | rebuilding
        reply 3 4       -> apply 3, apply 4
        end             -> apply 5              | exact
    """,
    "a gap that the replay should have filled is a loss": """
        live 0          -> apply 0
        live 3          -> replay 1
        reply 1         -> apply 1
        end             -> lost 2-2, apply 3    | degraded
    """,
}

WITHOUT_REPLAY = {
    "in order from 0": """
        live 0          -> apply 0              | exact
        live 1          -> apply 1              | exact
    """,
    "a gap is lost at once": """
        live 0 1        -> apply 0, apply 1
        live 5          -> lost 2-4, apply 5    | degraded
        live 6          -> apply 6              | degraded
    """,
    "a clear in the batch after a loss": """
        live 0          -> apply 0
        live 2!         -> lost 1-1, apply 2    | exact
    """,
    "a lost number that comes after all": """
        live 0          -> apply 0
        live 3          -> lost 1-2, apply 3
        live 2          -> forget restarted, apply 2 | joined
    """,
}

AT_THE_BOUNDS = {
    "the hold is full": """
        live 0          -> apply 0
        live 2 4 5      -> replay 1
        live 7          -> lost 1-1, apply 2, lost 3-3, apply 4, apply 5, lost 6-6, apply 7 | degraded
        reply 1         ->
        live 8          -> apply 8
        tick 10         -> replay 0
    """,
    "the hold is full after a reconnect": """
        live 0          -> apply 0
        disconnected    ->
        connected       -> replay 0
        live 1 2 3      ->                      | rebuilding
        live 4          -> lost 1-, apply 1, apply 2, apply 3, apply 4, lost 5- | degraded
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


@pytest.mark.parametrize("script", WITHOUT_REPLAY.values(), ids=WITHOUT_REPLAY)
def test_without_replay(script: str) -> None:
    play(script, has_replay=False)


@pytest.mark.parametrize("script", AT_THE_BOUNDS.values(), ids=AT_THE_BOUNDS)
def test_at_the_bounds(script: str) -> None:
    play(script, limits=SMALL)


def test_a_payload_beyond_the_hold_is_not_held() -> None:
    stream = play(
        """
        live 0          -> apply 0
        live 2          -> lost 1-1, apply 2    | degraded
        live 3          -> apply 3
        """,
        limits=StreamLimits(hold_bytes=1),
    )
    assert stream.counters.hold_overflows == 1


def test_gaps_and_losses_are_counted() -> None:
    counters = play(SCRIPTS["a truncated buffer is a loss"]).counters
    assert (counters.losses, counters.lost_batches, counters.replays_truncated) == (1, 5, 1)
    counters = play(AT_THE_BOUNDS["the hold is full"], limits=SMALL).counters
    assert (counters.hold_overflows, counters.lost_batches) == (1, 3)
