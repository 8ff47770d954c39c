"""The stream machine: a table of scripts, one a rule, and properties over all of them."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer import (
    Apply,
    EventStream,
    Forget,
    RecordLoss,
    ReplayEnding,
    RequestReplay,
    ResetCause,
    StreamLimits,
    Trust,
)
from tests.indexer.stream_script import heard, play

SMALL = StreamLimits(hold_batches=3, hold_bytes=10_000, remembered_payloads=2, replay_rounds=2)

WITH_REPLAY = {
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
    "a hole in a replay is asked for again, and lost if the buffer begins after it": """
        live 0          -> apply 0
        live 9          -> replay 1
        reply 1         -> apply 1
        reply 4         -> replay 2             | rebuilding
        reply 4         -> lost 2-3, apply 4
        end             -> lost 5-8, apply 9    | degraded
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
    "a replay that hangs is a loss, and a full replay repairs it later": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0             | rebuilding
        live 4          ->
        reply 0 1 2 3   -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             -> apply 4              | exact
        tick 10.5       ->
    """,
    "a repair that finds a truncated buffer is the last one": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0
        reply 2 3       ->
        end             ->                      | degraded
        tick 11         -> replay 3             | degraded
        reply 3         ->
        end             ->                      | degraded
        tick 30         ->
    """,
    "repairs that fail come ever more seldom": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3
        tick 10         -> replay 0
        fail            ->                      | degraded
        tick 29         -> replay 3             | degraded
        fail            ->                      | degraded
        tick 30         -> replay 0             | rebuilding
        fail            ->                      | degraded
        live 4          -> apply 4              | degraded
        tick 30.5       ->
    """,
    "a replay that breaks off leaves its end in doubt": """
        connected       -> replay 0             | rebuilding
        reply 0 1       -> apply 0, apply 1
        fail            -> lost 2-              | degraded
        tick 10         -> replay 0
        reply 0 1 2     -> forget rebuilt, apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a replay that is cut goes on from where it stands": """
        connected       -> replay 0
        reply 0 1       -> apply 0, apply 1
        cut             -> replay 2             | rebuilding
        reply 2         -> apply 2
        end             ->                      | exact
    """,
    "a restart at 0": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 0b         -> forget restarted, apply 0 | exact
        live 1b         -> apply 1
    """,
    "a restart that is noticed late is replayed from 0": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        live 2b         -> forget restarted, replay 0 | rebuilding
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
        live 3b         -> apply 3
    """,
    "a restart with a truncated buffer joins late": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        live 3b         -> forget restarted, replay 0
        reply 2b 3b     -> apply 2, apply 3
        end             ->                      | joined
    """,
    "a restart during a replay": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 5          -> replay 3
        live 1b         -> forget restarted, replay 0 | rebuilding
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "one number with two payloads, live": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 2b         -> forget restarted, replay 0
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "one number with two payloads, held and replayed": """
        live 0          -> apply 0
        live 2          -> replay 1
        reply 1b        -> apply 1
        reply 2b        -> forget restarted, replay 0 | rebuilding
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "an overtaken number during a replay is compared": """
        live 0          -> apply 0
        live 3          -> replay 1
        live 2          -> replay 0             | rebuilding
        reply 0         ->
        reply 1 2 3     -> apply 1, apply 2, apply 3
        end             ->                      | exact
    """,
    "a lower number during a replay can be another process": """
        live 0          -> apply 0
        live 3          -> replay 1
        live 2b         -> replay 0
        reply 0b        -> forget restarted, replay 0
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a duplicate": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 1 2 0      ->                      | exact
        live 3          -> apply 3
    """,
    "a duplicate of what is held": """
        live 0          -> apply 0
        live 2 2        -> replay 1
        reply 1         -> apply 1
        end             -> apply 2              | exact
    """,
    "an unreadable payload that can be replayed": """
        live 0          -> apply 0
        live 1?         -> replay 1             | rebuilding
        reply 1         -> apply 1
        end             ->                      | exact
    """,
    "an unreadable payload that is replayed as it was": """
        live 0          -> apply 0
        live 1?         -> replay 1
        reply 1?        -> lost 1-1
        end             ->                      | degraded
        live 2          -> apply 2
    """,
    "an unreadable payload that is not replayed": """
        live 0          -> apply 0
        live 1?         -> replay 1
        end             -> lost 1-1             | degraded
    """,
    "an unreadable payload during a replay is asked for once": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 3? 4       ->
        reply 1 2       -> apply 1, apply 2
        end             -> replay 3
        reply 3? 4      -> lost 3-3, apply 4
        end             ->                      | degraded
    """,
    "a late join is replayed from 0": """
        live 2          -> replay 0             | rebuilding
        live 3          ->
        reply 0 1 2     -> apply 0, apply 1, apply 2
        end             -> apply 3              | exact
    """,
    "a late join with a truncated buffer": """
        live 9          -> replay 0
        reply 7 8 9     -> apply 7, apply 8, apply 9
        end             ->                      | joined
    """,
    "a late join whose replay hangs is repaired": """
        live 2          -> replay 0
        fail            -> apply 2              | joined
        tick 10         -> replay 0
        reply 0 1 2     -> forget rebuilt, apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a publisher that has published nothing": """
        connected       -> replay 0             | rebuilding
        end             ->                      | exact
        live 0          -> apply 0              | exact
    """,
    "nobody answers and nobody speaks": """
        connected       -> replay 0             | rebuilding
        fail            ->                      | none
        tick 10         -> replay 0             | rebuilding
        end             ->                      | exact
    """,
    "a connection and a live message cross": """
        live 2          -> replay 0
        connected       ->
        reply 0 1 2     -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "live messages behind a replay are no restart": """
        connected       -> replay 0
        reply 0 1 2 3   -> apply 0, apply 1, apply 2, apply 3
        live 1          ->
        end             ->                      | exact
        live 2 3        ->
        live 4          -> apply 4
    """,
    "a full clear ends every doubt": """
        live 0          -> apply 0
        live 3          -> replay 1
        end             -> lost 1-2, apply 3    | degraded
        live 4!         -> apply 4              | exact
    """,
    "a reconnect to the same process": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->                      | exact
        connected       -> replay 1             | rebuilding
        live 4          ->
        reply 1         ->
        reply 2 3 4     -> apply 2, apply 3, apply 4
        end             ->                      | exact
    """,
    "a reconnect to another process with the same number": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        live 2b         ->
        reply 1b        -> forget restarted, replay 0 | rebuilding
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a reconnect to another process with fewer numbers": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        disconnected    ->
        connected       -> replay 2
        end             -> forget restarted, replay 0
        reply 0b        -> apply 0
        end             ->                      | exact
    """,
    "a reconnect where the last number left the buffer": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        disconnected    ->
        connected       -> replay 2
        reply 9         -> forget restarted, replay 0
        reply 9         -> apply 9
        end             ->                      | joined
    """,
    "a reconnect that nobody answers": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        disconnected    ->
        connected       -> replay 2
        live 3          ->
        fail            -> lost 3-, apply 3     | degraded
        tick 10         -> replay 0
        reply 0 1 2 3   -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             ->                      | exact
    """,
    "a connection that breaks during a replay": """
        live 0 1        -> apply 0, apply 1
        live 4          -> replay 2
        disconnected    ->                      | rebuilding
        reply 2b        ->
        connected       -> replay 1
        reply 1         ->
        reply 2 3 4     -> apply 2, apply 3, apply 4
        end             ->                      | exact
    """,
    "a connection that breaks twice": """
        connected       -> replay 0
        disconnected    ->                      | rebuilding
        connected       -> replay 0             | rebuilding
        reply 0         -> apply 0
        disconnected    ->
        connected       -> replay 0
        reply 0         ->
        reply 1         -> apply 1
        end             ->                      | exact
    """,
    "a restart and a broken connection cross": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 5          -> replay 3
        disconnected    ->
        live 1b         -> forget restarted, replay 0
        connected       -> replay 0             | rebuilding
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "the numbers of the process before are no measure": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        disconnected    ->
        connected       -> replay 3
        end             -> forget restarted, replay 0
        live 1b         ->
        reply 0b        -> apply 0
        end             -> apply 1              | exact
    """,
    "a replay that completes makes the next repair prompt": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0
        fail            ->
        tick 30         -> replay 0
        reply 0 1 2 3   -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             ->                      | exact
        live 5          -> replay 4
        fail            -> lost 4-4, apply 5    | degraded
        tick 40         -> replay 0             | rebuilding
    """,
    "behind a silence there is nothing": """
        live 0 1        -> apply 0, apply 1
        tick 0.9        ->
        tick 1          -> replay 1             | exact
        reply 1         ->
        end             ->                      | exact
        tick 30         ->
        tick 31         -> replay 1             | exact
    """,
    "behind a silence there is more": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        reply 1         ->
        reply 2         -> apply 2              | rebuilding
        end             ->                      | exact
    """,
    "behind a silence there is another process": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        reply 1b        -> forget restarted, replay 0
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "behind a silence there is a new process with nothing": """
        connected       -> replay 0
        reply 0         -> apply 0
        end             ->
        tick 1          -> replay 0             | exact
        end             -> forget restarted, replay 0
        end             ->                      | exact
    """,
    "a publisher without a buffer proves nothing by its silence": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        end             ->                      | exact
    """,
    "a live message ends the look behind a silence": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        live 2          -> apply 2              | exact
        reply 1         ->
    """,
    "a look behind a silence that nobody answers": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        fail            ->                      | exact
        live 2          -> apply 2
    """,
    "a number far away, then the true ones again": """
        live 0          -> apply 0
        live 1000000000000 -> replay 1
        end             -> lost 1-999999999999, apply 1000000000000 | degraded
        live 1          -> forget restarted, replay 0
        reply 0 1       -> apply 0, apply 1
        end             ->                      | exact
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
    "a late join": """
        live 7          -> apply 7              | joined
        live 8          -> apply 8              | joined
        live 10         -> lost 9-9, apply 10   | degraded
    """,
    "a late join at a clear": """
        live 7!         -> apply 7              | exact
    """,
    "a clear after a late join": """
        live 7          -> apply 7              | joined
        live 8!         -> apply 8              | exact
    """,
    "a clear in the batch after a loss": """
        live 0          -> apply 0
        live 2!         -> lost 1-1, apply 2    | exact
    """,
    "an unreadable payload": """
        live 0          -> apply 0
        live 1?         -> lost 1-1             | degraded
        live 1?         ->
        live 2          -> apply 2
    """,
    "an unreadable payload before anything else": """
        live 0?         ->                      | joined
        live 1          -> apply 1              | joined
    """,
    "a restart at 0": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 0b         -> forget restarted, apply 0 | exact
    """,
    "a restart that is noticed late": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 2b         -> forget restarted, apply 2 | joined
    """,
    "a lost number that comes after all": """
        live 0          -> apply 0
        live 3          -> lost 1-2, apply 3
        live 2          -> forget restarted, apply 2 | joined
    """,
    "a duplicate": """
        live 0 1        -> apply 0, apply 1
        live 1 0        ->                      | exact
    """,
    "a reconnect that goes on": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       ->                      | exact
        live 2          -> apply 2              | exact
    """,
    "a reconnect that has missed some": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       ->
        live 4          -> lost 2-3, apply 4    | degraded
    """,
    "a reconnect to another process": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       ->
        live 1b         -> forget restarted, apply 1 | joined
    """,
    "nothing heard": """
        connected       ->                      | none
        tick 1000       ->                      | none
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
        live 4          -> lost 1-, apply 1, apply 2, apply 3, apply 4 | degraded
    """,
    "a duplicate older than what is remembered counts as a restart": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        live 0          -> forget restarted, apply 0 | exact
    """,
    "an overlap with a replay older than what is remembered is dropped": """
        connected       -> replay 0
        reply 0 1 2 3   -> apply 0, apply 1, apply 2, apply 3
        live 0          ->
        end             ->                      | exact
        live 1 2 3      ->
        live 4          -> apply 4              | exact
    """,
    "replays in a row are bounded": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 4          ->
        reply 1 2       -> apply 1, apply 2
        end             -> replay 3
        live 6          ->
        reply 3         -> apply 3
        end             -> apply 4, lost 5-5, apply 6 | degraded
        tick 10         -> replay 0             | rebuilding
    """,
    "a replay that leaves nothing open starts the count anew": """
        live 0          -> apply 0
        live 2          -> replay 1
        reply 1         -> apply 1
        end             -> apply 2
        live 4          -> replay 3
        reply 3         -> apply 3
        end             -> apply 4
        live 6          -> replay 5
        reply 5         -> apply 5
        end             -> apply 6              | exact
    """,
    "looks behind silences are no rounds": """
        live 0          -> apply 0
        tick 1          -> replay 0
        live 1          -> apply 1
        tick 2          -> replay 1
        live 2          -> apply 2
        tick 3          -> replay 2
        live 3          -> apply 3
        live 5          -> replay 4             | rebuilding
    """,
    "two publishers under one name do not ask for ever": """
        live 1          -> replay 0
        live 1b         -> forget restarted, replay 0
        live 1          -> forget restarted, apply 1 | joined
        live 1b         -> forget restarted, apply 1 | joined
        live 1          -> forget restarted, apply 1 | joined
        tick 10         -> replay 0             | rebuilding
    """,
    "holes beyond the bound are lost": """
        live 0          -> apply 0
        live 9          -> replay 1
        reply 1 3       -> apply 1, replay 2
        reply 2 4       -> apply 2, lost 3-3, apply 4
        end             -> lost 5-8, apply 9    | degraded
        tick 10         -> replay 0
    """,
    "a cut beyond the bound has failed": """
        connected       -> replay 0
        reply 0         -> apply 0
        cut             -> replay 1
        reply 1         -> apply 1
        cut             -> lost 2-              | degraded
    """,
}


@pytest.mark.parametrize("script", WITH_REPLAY.values(), ids=WITH_REPLAY)
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


def test_what_happened_is_counted() -> None:
    counters = play(WITH_REPLAY["one number with two payloads, held and replayed"]).counters
    assert counters.resets == {ResetCause.OTHER_CONTENT: 1}
    assert (counters.gaps, counters.replays, counters.replays_completed) == (1, 2, 1)
    assert (counters.batches, counters.replayed_batches, counters.discarded) == (5, 4, 1)
    counters = play(WITH_REPLAY["a truncated buffer is a loss"]).counters
    assert (counters.losses, counters.lost_batches, counters.replays_truncated) == (1, 5, 1)
    counters = play(WITH_REPLAY["a duplicate"]).counters
    assert (counters.duplicates, counters.num_resets) == (3, 0)
    counters = play(WITH_REPLAY["an unreadable payload that is replayed as it was"]).counters
    assert (counters.unreadable, counters.lost_batches) == (1, 1)
    counters = play(WITH_REPLAY["a late join with a truncated buffer"]).counters
    assert (counters.missed_before_join, counters.losses) == (7, 0)
    counters = play(AT_THE_BOUNDS["the hold is full"], limits=SMALL).counters
    assert (counters.hold_overflows, counters.lost_batches) == (1, 3)
    counters = play(WITH_REPLAY["a full clear ends every doubt"]).counters
    assert (counters.clears, counters.events) == (1, 4)


def test_the_cost_of_a_message_in_order_does_not_depend_on_what_was_before() -> None:
    stream = EventStream(has_replay=True)
    batches = [heard(str(seq)) for seq in range(3000)]

    def calls_for(seq: int) -> int:
        return _num_calls(lambda: stream.on_live(batches[seq], 0.0))

    costs = {calls_for(seq) for seq in range(3000)}
    assert len(costs) <= 2  # the first one begins the stream
    assert max(costs) < 16


def _num_calls(work: Callable[[], object]) -> int:
    """Python functions entered by ``work``."""
    entered = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return entered


_words = st.builds(
    lambda seq, mark: f"{seq}{mark}",
    st.integers(0, 8),
    st.sampled_from(["", "", "", "b", "?", "!"]),
)
_steps = st.one_of(
    st.tuples(st.just("live"), _words),
    st.tuples(st.just("reply"), _words),
    st.tuples(
        st.sampled_from(["end", "cut", "fail", "connected", "disconnected", "tick"]), st.just("0")
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_steps, max_size=60), st.booleans())
def test_no_order_of_calls_breaks_it(steps: list[tuple[str, str]], has_replay: bool) -> None:
    stream = EventStream(has_replay, SMALL)
    now, last_applied = 0.0, -1
    for verb, word in steps:
        now += 0.6
        for action in _do(stream, verb, word, now):
            match action:
                case Apply(seq):
                    assert seq > last_applied
                    last_applied = seq
                case Forget():
                    last_applied = -1
                case RequestReplay(first_seq):
                    assert has_replay
                    assert first_seq >= 0
                case RecordLoss(first_seq, last_seq):
                    assert first_seq > last_applied
                    assert last_seq is None or last_seq >= first_seq
        stream.check()


def _do(
    stream: EventStream, verb: str, word: str, now: float
) -> list[Apply | Forget | RequestReplay | RecordLoss]:
    match verb:
        case "live":
            return stream.on_live(heard(word), now)
        case "reply":
            return stream.on_reply(heard(word), now)
        case "connected":
            return stream.on_connected()
        case "disconnected":
            stream.on_disconnected()
            return []
        case "tick":
            return stream.on_tick(now)
        case _:
            endings = {"end": ReplayEnding.COMPLETE, "cut": ReplayEnding.CUT}
            return stream.on_replay_end(endings.get(verb, ReplayEnding.FAILED), now)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 5))
def test_whatever_is_not_heard_is_replayed_in_order(is_heard: list[bool], delay: int) -> None:
    """A buffer that holds all, asked and answered some messages later: nothing is ever lost."""
    stream = EventStream(has_replay=True)
    applied: list[int] = []
    asked: tuple[int, int] | None = None  # first number, and the message after which it is answered
    for seq in [*range(len(is_heard)), len(is_heard)]:
        if seq == len(is_heard) or is_heard[seq]:
            for action in stream.on_live(heard(str(seq)), 0.0):
                asked = _note(action, applied, seq + delay) or asked
        while asked and asked[1] <= seq:
            asked = _answer(stream, asked[0], seq, applied)
    while asked:
        asked = _answer(stream, asked[0], len(is_heard), applied)
    assert applied == list(range(len(is_heard) + 1))
    assert stream.trust is Trust.EXACT
    assert stream.counters.losses == stream.counters.num_resets == 0


def _answer(
    stream: EventStream, first_seq: int, last_seq: int, applied: list[int]
) -> tuple[int, int] | None:
    again = None
    for seq in range(first_seq, last_seq + 1):
        for action in stream.on_reply(heard(str(seq)), 0.0):
            again = _note(action, applied, last_seq) or again
    for action in stream.on_replay_end(ReplayEnding.COMPLETE, 0.0):
        again = _note(action, applied, last_seq) or again
    return again


def _note(action: object, applied: list[int], answer_at: int) -> tuple[int, int] | None:
    match action:
        case Apply(seq):
            applied.append(seq)
        case RequestReplay(first_seq):
            return first_seq, answer_at
    return None
