"""What each release puts on the wire, byte for byte as recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import (
    BlockStored,
    EventBatch,
    ReplayEnd,
    ReplayReply,
    decode_batch,
    parse_live,
    parse_replay,
)
from tests.recordings import frames_of, json_lines
from worker.blocks import VllmRelease

DATA = Path(__file__).parents[2] / "data" / "vllm"
OFFLINE = {"0.22.1": VllmRelease.V0_23, "0.24.0": VllmRelease.V0_25, "0.26.0": VllmRelease.V0_32}


def recorded() -> Iterator[bytes]:
    """Payloads of 0.32.0."""
    for name in ("chatml_basic", "llama3_small_evict", "llama3_duplicates", "lora", "dp2_rank1"):
        for line in json_lines(DATA / f"{name}.jsonl"):
            if line["kind"] == "pub":
                yield parse_live(frames_of(line)).payload
    for line in json_lines(DATA / "cpu_offload_selfdesc.jsonl"):
        if line["kind"] == "pub":
            yield parse_live(frames_of(line)).payload


def test_what_was_recorded_is_written_again() -> None:
    payloads = list(recorded())
    assert len(payloads) > 100
    for payload in payloads:
        assert VllmRelease.V0_32.write(decode_batch(payload)) == payload


def test_older_forms_are_written_as_their_definitions_encode_them() -> None:
    """But for the map fields of a multimodal store, which no block pool has."""
    compared = 0
    for line in json_lines(DATA / "legacy_formats.jsonl"):
        release = OFFLINE.get(str(line["producer"]).split()[1])
        if release is None or "mm" in line["case"]:
            continue
        payload = parse_live(frames_of(line)).payload
        batch = decode_batch(payload)
        assert not batch.skipped
        assert release.write(batch) == payload, line["case"]
        compared += 1
    assert compared >= 24


def test_session_is_named_where_maps_are() -> None:
    event = BlockStored([1], None, [1, 2], 2, "GPU", session_id="s")
    for release in VllmRelease:
        (read,) = decode_batch(release.write(EventBatch(1.0, [event], 0))).events
        assert isinstance(read, BlockStored)
        assert read.session_id == (None if release is VllmRelease.V0_23 else "s")


@pytest.mark.parametrize("release", VllmRelease)
def test_replay_replies(release: VllmRelease) -> None:
    reply = ReplayReply(3, b"payload")
    frames = release.replay_frames(b"kv", reply)
    assert len(frames) == (4 if release is VllmRelease.V0_32 else 3)
    assert parse_replay(frames) == reply
    assert parse_replay(release.replay_frames(b"kv", ReplayEnd())) == ReplayEnd()
    assert (b"kv" in frames) == release.names_sources


def test_versions() -> None:
    assert [release.version for release in VllmRelease] == ["0.23.0", "0.25.0", "0.32.0"]
