"""The story of a stream: what is told of drops, repetitions, restarts, replays, and of what nobody can read."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroute.tap.heard import Batch, Heard, Note, NoteKind
from kvroute.tap.narrator import (
    MAX_DP_RANK,
    MAX_HELD,
    MAX_STRANGE,
    NOT_CONNECTED_S,
    REPLAY_TIMEOUT_S,
    SILENT_S,
    Narrator,
)
from protocol import (
    AllBlocksCleared,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    encode_batch,
    live_frames,
    replay_frames,
)

SOURCE = EventSource(Rank(WorkerId("w")), "tcp://w:1", "tcp://w:2")
REPLAY_END = replay_frames(b"", ReplayEnd())


def payload(seq: int, dp_rank: int | None = 0, process: int = 0) -> bytes:
    return encode_batch(EventBatch(process * 1000.0 + seq, [AllBlocksCleared()], dp_rank))


def live(seq: int, dp_rank: int | None = 0, process: int = 0) -> list[bytes]:
    return live_frames(LiveMessage(b"", seq, payload(seq, dp_rank, process)))


def replayed(seq: int) -> list[bytes]:
    return replay_frames(b"", ReplayReply(seq, payload(seq)))


def told(heard: Sequence[Heard]) -> list[str]:
    """Numbers of batches, and kinds of notes."""
    return [str(one.message.seq) if isinstance(one, Batch) else str(one.kind) for one in heard]


def story(*messages: Sequence[bytes]) -> list[str]:
    narrator = Narrator(SOURCE, 0.0)
    return [word for frames in messages for word in told(narrator.on_live(frames, 1.0))]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([live(0), live(1)], ["0", "1"]),
        ([live(7), live(8)], ["joined", "7", "8"]),
        ([live(0), live(3)], ["0", "gap", "3"]),
        ([live(0), live(1), live(1)], ["0", "1", "duplicate"]),
        ([live(0), live(1), live(0)], ["0", "1", "duplicate"]),
        ([live(0), live(1), live(0, process=1)], ["0", "1", "restart", "0"]),
        ([live(5), live(2, process=1)], ["joined", "5", "restart", "gap", "2"]),
        ([live(0), live(0, 1), live(1), live(1, 1)], ["0", "0", "1", "1"]),
        ([live(0), [b"", b"\0" * 7 + b"\1", b"\xc1"], live(2)], ["0", "unreadable", "2"]),
        ([live(0), [b"", b"\0" * 7, b""]], ["0", "bad_frames"]),
        ([live(0), [b"x"]], ["0", "bad_frames"]),
        ([live(0, MAX_DP_RANK + 1)], ["unreadable"]),
    ],
)
def test_what_is_told_of_numbers(messages: list[list[bytes]], expected: list[str]) -> None:
    assert story(*messages) == expected


def test_an_event_that_cannot_be_read_is_named_beside_its_neighbours() -> None:
    import msgpack

    raw = msgpack.packb([1.0, [{"type": "AllBlocksCleared"}, {"type": "New"}], 0])
    narrator = Narrator(SOURCE, 0.0)
    note, batch = narrator.on_live(live_frames(LiveMessage(b"", 0, raw)), 1.0)
    assert isinstance(note, Note)
    assert note.kind is NoteKind.SKIPPED_EVENT
    assert "unknown_event" in note.text
    assert isinstance(batch, Batch)
    assert len(batch.batch.events) == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_gaps_add_up_to_what_was_dropped(steps: list[tuple[int, bool]]) -> None:
    """Each step drops some batches, delivers one, and may deliver it again."""
    narrator, seq, num_dropped, num_again = Narrator(SOURCE, 0.0), -1, 0, 0
    heard: list[Heard] = list(narrator.on_live(live(0), 0.0))
    seq = 0
    for dropped, again in steps:
        seq += 1 + dropped
        num_dropped += dropped
        num_again += again
        for _ in range(1 + again):
            heard += narrator.on_live(live(seq), 0.0)
    notes = [one for one in heard if isinstance(one, Note)]
    gaps = [one.missing for one in notes if one.missing is not None]
    assert sum(last - first + 1 for first, last in gaps) == num_dropped
    assert sum(one.kind is NoteKind.DUPLICATE for one in notes) == num_again
    assert len(heard) == 1 + len(steps) + len(notes)


def replaying() -> Narrator:
    narrator = Narrator(SOURCE, 0.0)
    assert not narrator.begin_replay(0.0)
    narrator.on_connected(0.0)
    assert narrator.begin_replay(0.0)
    assert not narrator.begin_replay(0.0)
    return narrator


def test_live_batches_wait_for_the_end_of_the_replay() -> None:
    narrator = replaying()
    assert narrator.on_live(live(2), 1.0) == []
    assert narrator.on_live(live(3), 1.0) == []
    heard = [one for seq in (0, 1, 2) for one in narrator.on_replay(replayed(seq), 2.0)]
    assert told(heard) == ["0", "1", "2"]
    assert all(isinstance(one, Batch) and one.is_replayed for one in heard)
    assert told(narrator.on_replay(REPLAY_END, 2.0)) == ["replayed", "3"]
    assert told(narrator.on_live(live(4), 3.0)) == ["4"]
    assert narrator.on_replay(replayed(0), 3.0) == []


def test_a_short_buffer_and_a_hole_behind_it_are_told() -> None:
    narrator = replaying()
    narrator.on_live(live(9), 1.0)
    heard = [*narrator.on_replay(replayed(5), 1.0), *narrator.on_replay(REPLAY_END, 1.0)]
    assert told(heard) == ["replay_truncated", "5", "replayed", "gap", "9"]


def test_a_replay_that_is_silent_has_failed() -> None:
    narrator = replaying()
    narrator.on_live(live(4), 1.0)
    assert narrator.on_tick(REPLAY_TIMEOUT_S - 0.1) == []
    assert told(narrator.on_tick(REPLAY_TIMEOUT_S)) == ["replay_failed", "joined", "4"]
    assert not narrator.is_replaying


def test_a_replay_ends_with_its_connection() -> None:
    narrator = replaying()
    narrator.on_live(live(0), 1.0)
    assert told(narrator.on_disconnected(1.0)) == ["replay_failed", "0", "disconnected"]


def test_what_is_held_is_bounded() -> None:
    narrator = replaying()
    heard = [one for seq in range(MAX_HELD) for one in narrator.on_live(live(seq), 1.0)]
    assert told(heard)[:2] == ["hold_full", "replayed"]
    assert told(heard)[2:] == [str(seq) for seq in range(MAX_HELD)]


def test_silence_is_explained_once() -> None:
    narrator = Narrator(SOURCE, 0.0)
    assert narrator.on_tick(NOT_CONNECTED_S - 0.1) == []
    assert told(narrator.on_tick(NOT_CONNECTED_S)) == ["not_connected"]
    assert narrator.on_tick(NOT_CONNECTED_S + 1) == []
    narrator.on_connected(10.0)
    assert told(narrator.on_tick(10.0 + SILENT_S)) == ["silent"]
    assert narrator.on_tick(20.0 + SILENT_S) == []


def test_who_never_speaks_zeromq_is_told_of_a_few_times_until_a_connection() -> None:
    narrator, words = Narrator(SOURCE, 0.0), []
    for _ in range(50):
        words += told(narrator.on_live([b"HTTP"], 1.0)) + told(narrator.on_disconnected(1.0))
    assert words == ["bad_frames", "disconnected"] * MAX_STRANGE
    assert told(narrator.on_connected(2.0)) == ["connected"]
    assert told(narrator.on_live([b"x"], 3.0)) == ["bad_frames"]
    assert told(narrator.on_disconnected(4.0)) == ["disconnected"]
