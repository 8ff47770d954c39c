"""Recordings have the form of the engines' recordings, and the state beside them is the one those have."""

import json
from pathlib import Path

import pytest

from kvroute.tap.fold import Fold
from kvroute.tap.heard import Batch, Note, NoteKind
from kvroute.tap.narrator import Narrator
from kvroute.tap.recording import Recording, Recordings
from protocol import (
    AllBlocksCleared,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    WorkerId,
    encode_batch,
    parse_live,
)
from tests.conftest import DATA
from tests.recordings import frames_of, json_lines, vllm_recordings

SOURCE = EventSource(Rank(WorkerId("w")), "tcp://w:1")
FOLDED = [
    path for path in vllm_recordings(DATA) if path.with_name(f"{path.stem}.expected.json").exists()
]


def batches(path: Path) -> list[Batch]:
    """The live messages of a recording, as a tap hears them."""
    narrator = Narrator(SOURCE, 0.0)
    heard = [
        one
        for line in json_lines(path)
        if line["kind"] == "pub"
        for one in narrator.on_live(frames_of(line), line["t"])
    ]
    return [one for one in heard if isinstance(one, Batch)]


@pytest.mark.parametrize("path", FOLDED, ids=lambda path: path.stem)
def test_the_state_is_the_recorded_one(path: Path) -> None:
    fold = Fold()
    for one in batches(path):
        fold.apply(one)
    found = json.loads(json.dumps(fold.expected(path.stem)))
    expected = json.loads(path.with_name(f"{path.stem}.expected.json").read_text())
    assert canonical(found) == canonical(expected)


def canonical(state: dict[str, object]) -> dict[str, object]:
    """With the order of blocks left out."""
    blocks = state["blocks"]
    assert isinstance(blocks, list)
    keyed = {
        (one["medium"], one["group_idx"], one["kv_cache_spec_kind"]): sorted(
            map(str, one["hashes"])
        )
        for one in blocks
    }
    return state | {"blocks": keyed}


@pytest.mark.parametrize("path", FOLDED, ids=lambda path: path.stem)
def test_what_is_recorded_again_is_the_same(path: Path, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "again.jsonl")
    for one in batches(path):
        recording.add(one)
    recording.close()
    recording.close()
    first = [line for line in json_lines(path) if line["kind"] == "pub"]
    again = list(json_lines(tmp_path / "again.jsonl"))
    names = ("t", "kind", "frames_hex", "topic", "seq", "decoded")
    assert [{k: line[k] for k in names} for line in again] == [
        {k: line[k] for k in names} for line in first
    ]
    assert (tmp_path / "again.expected.json").exists()


def batch(seq: int, dp_rank: int = 0) -> Batch:
    made = EventBatch(1.0, [AllBlocksCleared()], dp_rank)
    return Batch(dp_rank, LiveMessage(b"kv", seq, encode_batch(made)), made, 2.0)


def test_each_rank_has_a_file_of_its_own(tmp_path: Path) -> None:
    alone = Recordings(tmp_path / "a.jsonl", has_ranks=False)
    many = Recordings(tmp_path / "b.jsonl", has_ranks=True)
    for recordings in (alone, many):
        for one in (batch(0, 1), batch(0, 0), batch(1, 1)):
            recordings.add(one)
        recordings.close()
    assert [path.name for path in alone.paths] == ["a.jsonl", "a_rank0.jsonl"]
    assert [path.name for path in many.paths] == ["b_rank1.jsonl", "b_rank0.jsonl"]
    assert [line["seq"] for line in json_lines(tmp_path / "a.jsonl")] == [0, 1]


def test_what_cannot_be_read_is_kept_under_another_kind(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "a.jsonl", has_ranks=False)
    recordings.add(Note(NoteKind.CONNECTED, "", 0.0))
    recordings.add(batch(0))
    recordings.add(Note(NoteKind.BAD_FRAMES, "", 0.0, None, None, (b"\0", b"\1")))
    recordings.add(Note(NoteKind.GAP, "", 0.0, 0, (1, 1)))
    recordings.add(Note(NoteKind.UNREADABLE, "", 0.0, 0, None, (b"", b"\0" * 8, b"\xc1")))
    recordings.close()
    lines = list(json_lines(tmp_path / "a.jsonl"))
    assert [line["kind"] for line in lines] == ["pub", "bad_frames", "unreadable"]
    assert parse_live(frames_of(lines[0])).topic == b"kv"
    assert frames_of(lines[1]) == [b"\0", b"\1"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("kept")
    with pytest.raises(FileExistsError):
        Recording(tmp_path / "a.jsonl")


def test_a_payload_that_json_cannot_hold_is_kept_as_frames(tmp_path: Path) -> None:
    import msgpack

    deep: object = 0
    for _ in range(400):
        deep = [deep]
    raw = msgpack.packb([1.0, [{"type": "AllBlocksCleared", "new": deep}], 0])
    recording = Recording(tmp_path / "a.jsonl")
    made = EventBatch(1.0, [AllBlocksCleared()], 0)
    recording.add(Batch(0, LiveMessage(b"", 0, raw), made, 2.0))
    recording.close()
    (line,) = json_lines(tmp_path / "a.jsonl")
    assert line["decoded"] is None
    assert frames_of(line)[2] == raw
