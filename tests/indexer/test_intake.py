"""All sources into one sink: real recordings, removal, and re-registration."""

import json
from pathlib import Path
from typing import Any

import pytest

from indexer import FindingKind, FleetIndex, ForgetReason, Intake, Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EngineKind,
    EventBatch,
    EventSource,
    KvEvent,
    LiveMessage,
    Rank,
    WorkerId,
    WorkerSpec,
    encode_batch,
    live_frames,
)
from tests.indexer.set_sink import SetSink
from tests.recordings import frames_of, json_lines

A = EventSource(Rank(WorkerId("a")), "tcp://a:1", "tcp://a:2")
B = EventSource(Rank(WorkerId("b")), "tcp://b:1")


def _frames(seq: int, event: KvEvent, ts: float = 0.0) -> list[bytes]:
    return live_frames(LiveMessage(b"", seq, encode_batch(EventBatch(ts + seq, [event], 0))))


def _stored(block: int) -> BlockStored:
    return BlockStored([block], None, [1], 1, "GPU")


def _golden(golden: Path, name: str) -> dict[str, Any]:
    path = golden / "sglang" / "zmq_frames_sglang_0.5.23.json"
    if not path.exists():
        pytest.skip("no frame recording there")
    frames: dict[str, Any] = json.loads(path.read_text())[name]
    return frames


def _bytes(frames: list[str]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in frames]


@pytest.mark.parametrize("name", ["default_topic", "topic_kv_rank2"])
@pytest.mark.parametrize("num_withheld", range(6))
def test_sglang_live_then_replayed(golden: Path, name: str, num_withheld: int) -> None:
    """However many of the first messages are missed, the recorded replay makes up for them."""
    recording = _golden(golden, name)
    live = [_bytes(frames) for frames in recording["live"]]
    rank = Rank(WorkerId("w"), recording["dp_rank"])
    source = EventSource(rank, "tcp://w:1", "tcp://w:2", recording["config"]["topic"])
    whole, sink = SetSink(), SetSink()
    heard_all, intake = Intake(whole), Intake(sink)
    for each in (heard_all, intake):
        each.add_source(source, 0.0)
    for frames in live:
        assert not heard_all.on_live(source, frames, 0.0)
    replies = recording.get("replay_dealer")
    requests = [r for f in live[num_withheld:] for r in intake.on_live(source, f, 0.0)]
    assert [r.first_seq for r in requests] == ([0] if num_withheld else [])
    if num_withheld and replies:
        for reply in replies[0]["response"]:
            assert not intake.on_replay(source, _bytes(reply), 0.0)
    elif num_withheld:
        intake.on_replay_failed(source, 0.0)
    intake.check()
    if not num_withheld or replies:
        assert sink.trust[rank] is Trust.EXACT
        assert sink.claims == whole.claims
        assert [b.ts for _, b in sink.batches] == [b.ts for _, b in whole.batches]


def test_a_recorded_vllm_stream_folds_to_its_recorded_state(golden: Path) -> None:
    """Restarts and gaps as the recording's own summary counts them, without a replay socket."""
    directory = golden / "vllm"
    for expected_path in sorted(directory.glob("*.expected.json")):
        recording = expected_path.with_name(expected_path.name.replace(".expected.json", ".jsonl"))
        if not recording.exists():
            continue
        sink = SetSink()
        intake = Intake(sink)
        source = EventSource(Rank(WorkerId("w")), "tcp://w:1")
        intake.add_source(source, 0.0)
        for line in json_lines(recording):
            if line["kind"] == "pub":
                intake.on_live(source, frames_of(line), 0.0)
        intake.check()
        expected = json.loads(expected_path.read_text())
        [status] = [s for s in intake.statuses() if s.counters.batches]
        counters = status.counters
        assert counters.num_resets == expected["restarts"], recording.name
        missing = sum(last - first + 1 for first, last in expected["gaps"])
        assert counters.lost_batches == missing, recording.name
        if not counters.num_resets:
            assert counters.missed_before_join == expected["first_seq"], recording.name


def test_sources_do_not_touch_each_other() -> None:
    sink = SetSink()
    intake = Intake(sink)
    intake.add_source(A, 0.0)
    intake.add_source(B, 0.0)
    intake.on_live(A, _frames(0, _stored(1)), 0.0)
    intake.on_live(B, _frames(0, _stored(2)), 0.0)
    intake.on_live(B, _frames(0, _stored(3), ts=9.0), 0.0)
    assert (sink.claims[A.rank], sink.claims[B.rank]) == ({1}, {3})
    assert sink.forgets == [(B.rank, ForgetReason.RESTARTED)]
    assert intake.sources == [A, B]
    assert [status.rank for status in intake.statuses()] == [A.rank, B.rank]


def test_a_removed_source_is_forgotten_and_nothing_queued_brings_it_back() -> None:
    sink = SetSink()
    intake = Intake(sink)
    intake.add_source(A, 0.0)
    intake.on_connected(A, 0.0)
    intake.on_replay(A, [b"", b"\xff" * 8, b""], 0.0)
    intake.on_live(A, _frames(0, _stored(1)), 0.0)
    intake.remove_source(A, 0.0)
    assert not sink.claims[A.rank]
    assert sink.forgets == [(A.rank, ForgetReason.WORKER_REMOVED)]
    changes = list(sink.trust_changes)
    intake.on_live(A, _frames(1, _stored(2)), 0.0)
    intake.on_replay(A, _frames(1, _stored(2)), 0.0)
    intake.on_connected(A, 0.0)
    intake.on_disconnected(A, 0.0)
    intake.on_replay_failed(A, 0.0)
    intake.remove_source(A, 0.0)
    assert not intake.on_tick(1e9)
    assert not sink.claims[A.rank]
    assert sink.trust_changes == changes
    assert intake.num_stray_messages == 5
    assert (intake.status(A.rank), intake.is_replaying(A)) == (None, False)
    assert not intake.source_counters()


def test_a_source_that_comes_back_begins_anew() -> None:
    """Number 0 after a new registration is neither a duplicate nor a gap nor a restart."""
    sink = SetSink()
    intake = Intake(sink)
    intake.add_source(B, 0.0)
    for seq in range(10):
        intake.on_live(B, _frames(seq, _stored(seq)), 0.0)
    intake.remove_source(B, 0.0)
    intake.add_source(B, 0.0)
    intake.on_live(B, _frames(0, _stored(77)), 0.0)
    status = intake.status(B.rank)
    assert status is not None
    assert sink.claims[B.rank] == {77}
    assert sink.trust[B.rank] is Trust.EXACT
    counters = status.counters
    assert (counters.batches, counters.duplicates, counters.gaps, counters.num_resets) == (
        1,
        0,
        0,
        0,
    )


def test_resets_are_counted_by_rank_of_those_that_were_heard() -> None:
    sources = [EventSource(Rank(WorkerId("w"), i), f"tcp://w:{i + 1}") for i in range(3)]
    intake = Intake(SetSink())
    for one in sources:
        intake.add_source(one, 0.0)
        intake.on_connected(one, 0.0)
    for num_resets, one in enumerate(sources[:2]):
        for process in range(1 + num_resets):
            for seq in range(2):
                batch = EventBatch(float(process), [_stored(seq)], one.rank.dp_rank)
                message = LiveMessage(b"", seq, encode_batch(batch))
                intake.on_live(one, live_frames(message), 1.0)
    assert intake.resets(WorkerId("w")) == {0: 0, 1: 1}
    assert intake.resets(WorkerId("nobody")) == {}


def test_adding_twice_changes_nothing() -> None:
    sink = SetSink()
    intake = Intake(sink)
    intake.add_source(B, 0.0)
    intake.on_live(B, _frames(0, _stored(1)), 0.0)
    intake.add_source(B, 0.0)
    intake.on_live(B, _frames(1, BlockRemoved([1], "GPU")), 0.0)
    assert sink.claims[B.rank] == set[EngineHash]()
    assert sink.trust[B.rank] is Trust.EXACT


def test_ticks_ask_for_every_source() -> None:
    sink = SetSink()
    intake = Intake(sink)
    for source in (A, B):
        intake.add_source(source, 0.0)
        intake.on_connected(source, 0.0)
    assert intake.is_replaying(A)
    assert not intake.is_replaying(B)
    assert intake.on_tick(5.0) == []
    assert not intake.is_replaying(A), "it has failed"
    assert [source for source, _ in intake.on_tick(15.0)] == [A]


def test_a_restart_from_joined_to_joined_leaves_the_past_unknown() -> None:
    """Removals of what was stored before we listened are no strange ones, whatever comes between."""
    index = FleetIndex()
    spec = WorkerSpec(B.rank.worker, "http://b", "m", EngineKind.VLLM, block_size=1, sources=(B,))
    index.add_worker(spec, 0.0)
    intake = Intake(index)
    intake.add_source(B, 0.0)
    intake.on_live(B, _frames(5, _stored(1)), 0.0)
    intake.on_live(B, _frames(3, _stored(2), ts=1e6), 0.0)
    assert index.trust(B.rank, 0.0) is Trust.JOINED
    intake.on_live(B, _frames(4, AllBlocksCleared(), ts=1e6), 0.0)
    assert index.trust(B.rank, 0.0) is Trust.EXACT, "though HOST may hold more"
    for seq in range(5, 200):
        intake.on_live(B, _frames(seq, BlockRemoved([seq], "CPU"), ts=1e6), 0.0)
    kinds = {finding.kind for finding in index.findings(1.0)}
    assert FindingKind.HOST_STORES_UNANNOUNCED not in kinds
