"""The stream machine as a whole: properties over all that it may hear, and its cost."""

import sys
from collections.abc import Callable
from types import FrameType

from hypothesis import given, settings
from hypothesis import strategies as st

from indexer import (
    Apply,
    EventStream,
    Forget,
    RecordLoss,
    ReplayEnding,
    RequestReplay,
    Trust,
)
from tests.indexer.stream_script import SMALL, heard


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
    st.sampled_from(["", "", "", "b", "?", "!", "~"]),
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
                    assert first_seq >= last_applied
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
