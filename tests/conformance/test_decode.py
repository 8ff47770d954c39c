"""Every recorded payload decodes to what its engine says it holds."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    decode_batch,
    encode_batch,
    normalise_hash,
    parse_live,
    parse_replay,
)
from protocol.frames import ReplayEnd, ReplayReply
from tests.recordings import frames_of, json_lines, sglang_scenarios, vllm_recordings

STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality",
)  # fmt: skip
REMOVED = ("block_hashes", "medium", "group_idx", "locality")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    files = {
        "scenario": sglang_scenarios(golden),
        "recording": vllm_recordings(golden),
        "wire_versions": sorted((golden / "sglang").glob("wire_by_version.json")),
        "wire_frames": sorted((golden / "sglang").glob("zmq_frames_*.json")),
    }
    for name, paths in files.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, paths, ids=lambda path: path.stem)


def recorded_hash(value: Any) -> int | bytes:
    """A hash as a recording writes it: a number of either sign, or bytes in hex."""
    if isinstance(value, dict):
        return bytes.fromhex(value["__bytes__"])
    return normalise_hash(value)


def by_name(raw: Any) -> dict[str, Any]:
    """A recorded event as a map, whichever form it was published in."""
    if isinstance(raw, dict):
        return raw
    names = {"BlockStored": STORED, "BlockRemoved": REMOVED}.get(raw[0], ())
    fields: dict[str, Any] = {"type": raw[0]}
    for name, value in zip(names, raw[1:], strict=False):
        is_merged = isinstance(value, dict) and "__bytes__" not in value
        fields |= value if is_merged else {name: value}
    return fields


def assert_event(event: KvEvent, raw: Any) -> None:
    fields = by_name(raw)
    assert type(event).__name__ == fields["type"]
    match event:
        case BlockStored():
            assert_stored(event, fields)
        case BlockRemoved():
            assert list(event.block_hashes) == [recorded_hash(h) for h in fields["block_hashes"]]
            assert event.medium == fields.get("medium")
            assert event.group_idx == fields.get("group_idx")
        case AllBlocksCleared():
            assert event.medium is None


def assert_stored(event: BlockStored, fields: dict[str, Any]) -> None:
    assert list(event.block_hashes) == [recorded_hash(h) for h in fields["block_hashes"]]
    parent = fields["parent_block_hash"]
    assert event.parent_hash == (None if parent is None else recorded_hash(parent))
    assert tokens_as_published(event) == fields["token_ids"]
    assert event.block_size == fields["block_size"]
    assert event.spec_kind == fields.get("kv_cache_spec_kind")
    assert event.sliding_window == fields.get("kv_cache_spec_sliding_window")
    same_names = ("lora_id", "medium", "lora_name", "cache_salt", "session_id", "group_idx")
    for name in (*same_names, "locality", "extra_keys"):
        assert getattr(event, name) == fields.get(name), name


def tokens_as_published(event: BlockStored) -> list[Any]:
    if event.is_eagle:
        return [list(pair) for pair in pairwise(event.token_ids)]
    return list(event.token_ids)


def assert_batch(batch: EventBatch, recorded: Sequence[Any]) -> None:
    """``recorded`` is a batch's ``[ts, events, rank?]``."""
    assert batch.skipped == []
    assert batch.ts == recorded[0]
    assert batch.dp_rank == (recorded[2] if len(recorded) > 2 else None)
    assert len(batch.events) == len(recorded[1])
    for event, raw in zip(batch.events, recorded[1], strict=True):
        assert_event(event, raw)


def test_sglang_payloads(scenario: Path) -> None:
    for line in json_lines(scenario):
        if "payload_hex" in line:
            payload = bytes.fromhex(line["payload_hex"])
            batch = decode_batch(payload)
            assert_batch(batch, [line.get("ts", batch.ts), line["events"], 0])


def test_sglang_payloads_encode_to_the_same_bytes(scenario: Path) -> None:
    if scenario.stem.startswith("prefix0519"):
        pytest.skip("SGLang 0.5.19 publishes positional events; batches are written as 0.5.23 does")
    for line in json_lines(scenario):
        if "payload_hex" in line:
            payload = bytes.fromhex(line["payload_hex"])
            assert encode_batch(decode_batch(payload)) == payload


def test_every_sglang_release(wire_versions: Path) -> None:
    for version, release in json.loads(wire_versions.read_text()).items():
        for name, case in release["cases"].items():
            batch = decode_batch(bytes.fromhex(case["hex"]))
            assert batch.skipped == [], (version, name)
            assert_batch(batch, case["json"])


def test_sglang_frames(wire_frames: Path) -> None:
    for name, capture in json.loads(wire_frames.read_text()).items():
        if isinstance(capture, dict) and "live" in capture:
            live = [parse_live([bytes.fromhex(f) for f in frames]) for frames in capture["live"]]
            assert [message.seq for message in live] == list(range(len(live))), name
            payloads = {message.seq: message.payload for message in live}
            for conversation in capture.get("replay_dealer", []):
                assert_conversation(conversation, payloads)


def assert_conversation(conversation: dict[str, Any], payloads: dict[int, bytes]) -> None:
    """Replies are the live payloads from the requested number on, then the end marker."""
    replies = [
        parse_replay([bytes.fromhex(frame) for frame in frames])
        for frames in conversation["response"]
    ]
    assert all(isinstance(reply, ReplayReply) for reply in replies[:-1])
    assert replies[-1:] == [ReplayEnd()]
    for reply in replies[:-1]:
        assert isinstance(reply, ReplayReply)
        assert payloads[reply.seq] == reply.payload


def test_vllm_messages(recording: Path) -> None:
    for line in json_lines(recording):
        if line.get("kind") == "pub" or "producer" in line:
            message = parse_live(frames_of(line))
            assert message.seq == line.get("seq", message.seq)
            assert_batch(decode_batch(message.payload), line["decoded"])


def test_vllm_replay(recording: Path) -> None:
    for line in json_lines(recording):
        if str(line.get("kind")).startswith("replay_reply"):
            reply = parse_replay(frames_of(line))
            if line["seq"] == -1:
                assert reply == ReplayEnd()
            else:
                assert isinstance(reply, ReplayReply)
                assert reply.seq == line["seq"]
                assert_batch(decode_batch(reply.payload), line["decoded"])
