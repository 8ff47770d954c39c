"""Listening to vLLM's recorded streams gives the recorded end state, full-attention groups alone claiming."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexer import Prompt, Trust
from protocol import (
    BlockStored,
    EngineHash,
    EngineKind,
    Tier,
    decode_batch,
    normalise_hash,
    pack_tokens,
    parse_live,
    tier_of,
)
from tests.conformance.listening import MODEL, Fold, Listener
from tests.recordings import frames_of, json_lines, vllm_recordings


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    if "recording" in metafunc.fixturenames:
        paths = [path for path in vllm_recordings(golden) if expected_file(path).exists()]
        metafunc.parametrize("recording", paths, ids=lambda path: path.stem)


def expected_file(recording: Path) -> Path:
    return recording.with_name(f"{recording.stem}.expected.json")


def recorded_hash(value: Any) -> EngineHash:
    return bytes.fromhex(value) if isinstance(value, str) else normalise_hash(value)


def expected_of(recording: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(expected_file(recording).read_text())
    return fields


def expected_claims(recording: Path) -> dict[Tier, set[EngineHash]]:
    """Hashes by tier in the groups that make prefix claims."""
    held: dict[Tier, set[EngineHash]] = {tier: set() for tier in Tier}
    for blocks in expected_of(recording)["blocks"]:
        tier = tier_of(blocks["medium"])
        if blocks["kv_cache_spec_kind"] in (None, "full_attention") and tier is not None:
            held[tier] |= {recorded_hash(value) for value in blocks["hashes"]}
    return held


def published(recording: Path) -> Iterator[list[bytes]]:
    """Frames of every live message."""
    for line in json_lines(recording):
        if line.get("kind") == "pub":
            yield frames_of(line)


def listen(recording: Path) -> Listener:
    """Hear every live message; as long as every parent is known, claims equal plain sets after each."""
    messages = list(published(recording))
    ranks = [decode_batch(parse_live(frames).payload).dp_rank for frames in messages[:1]]
    listening = Listener(EngineKind.VLLM, dp_rank=next(iter(ranks), None) or 0)
    for frames in messages:
        listening.live(frames)
        if not listening.state.unnamed:
            assert listening.held() == listening.tap.fold.claims()
    return listening


def test_blocks_by_medium_and_group(recording: Path) -> None:
    """What comes out of the stream, in every group: nothing lost, repeated or out of order."""
    fold = listen(recording).tap.fold
    expected = {
        (blocks["medium"], blocks["group_idx"]): {
            recorded_hash(value) for value in blocks["hashes"]
        }
        for blocks in expected_of(recording)["blocks"]
    }
    assert {at: hashes for at, hashes in fold.held.items() if hashes} == expected
    for blocks in expected_of(recording)["blocks"]:
        assert fold.kinds[blocks["group_idx"]] == blocks["kv_cache_spec_kind"]


def test_claims(recording: Path) -> None:
    listening, expected = listen(recording), expected_claims(recording)
    state = listening.state
    held = listening.held()
    if state.unnamed:
        # Recorded from a number above 0: children of blocks announced before are parked, not claimed.
        assert state.orphans == state.unnamed
        assert all(held[tier] <= expected[tier] for tier in Tier)
        missing = sum(len(expected[tier] - held[tier]) for tier in Tier)
        assert missing <= state.unnamed
    else:
        assert held == expected
    assert not listening.findings()


def test_counts(recording: Path) -> None:
    listening, expected = listen(recording), expected_of(recording)
    assert listening.tap.fold.counts == Counter(expected["counts"])
    counters = listening.status.counters
    assert counters.batches == expected["counts"]["batches"]
    assert counters.clears == expected["counts"]["cleared"]
    state = listening.state
    if listening.tap.fold.has_sparse_groups or state.skips:
        return  # the index counts what makes claims, the recording every group
    assert sum(state.duplicates.values()) == expected["counts"]["duplicate_stores"]
    assert sum(state.unknown_removals.values()) == expected["counts"]["unknown_removals"]


def test_numbers(recording: Path) -> None:
    """Restarts and gaps are noticed, and nothing else is taken for one."""
    listening, expected = listen(recording), expected_of(recording)
    status, counters = listening.status, listening.status.counters
    assert status.last_seq == expected["last_seq"]
    assert listening.tap.num_restarts == counters.num_resets == expected["restarts"]
    missing = sum(last - first + 1 for first, last in expected["gaps"])
    # What a new process said before it was first heard is no gap of the stream, for no claim rests on it.
    unheard = counters.missed_before_join - expected["first_seq"] * (not expected["restarts"])
    assert counters.lost_batches <= missing <= counters.lost_batches + unheard
    if not expected["restarts"]:
        assert counters.gaps == len(expected["gaps"])
        is_late = expected["first_seq"] > 0 and not counters.clears
        heard_whole = Trust.JOINED if is_late else Trust.EXACT
        assert status.trust is (Trust.DEGRADED if missing else heard_whole)


def test_a_recording_after_another_is_a_restart(recording: Path, golden: Path) -> None:
    """One process after the other on the same address: nothing of the first one is left."""
    alone, first_seq = listen(recording), expected_of(recording)["first_seq"]
    others = [
        path
        for path in vllm_recordings(golden)
        if path != recording and expected_file(path).exists()
    ]
    before = next(
        (
            path
            for path in others
            if expected_of(path)["last_seq"] >= first_seq and listen(path).rank == alone.rank
        ),
        None,
    )
    if before is None:
        pytest.skip("no other recording of this rank reaches the number that this one begins with")
    both = Listener(EngineKind.VLLM, dp_rank=alone.rank.dp_rank)
    for frames in [*published(before), *published(recording)]:
        both.live(frames)
    restarts = expected_of(before)["restarts"] + expected_of(recording)["restarts"]
    assert both.tap.num_restarts == 1 + restarts
    assert both.held() == alone.held()


def test_a_lost_message_is_a_gap(recording: Path) -> None:
    """Without a replay the loss is told, and what was heard is folded as ever."""
    messages = [*published(recording)]
    if len(messages) < 3:
        pytest.skip("too few messages to lose one")
    rank = listen(recording).rank.dp_rank
    listening = Listener(EngineKind.VLLM, dp_rank=rank)
    for frames in [messages[0], *messages[2:]]:
        listening.live(frames)
    counters = listening.status.counters
    num_gaps = len(expected_of(recording)["gaps"])
    assert (counters.gaps, counters.losses) >= (num_gaps + 1, num_gaps + 1)
    held, all_held = listening.held(), listening.tap.fold.claims()
    assert all(held[tier] <= all_held[tier] for tier in Tier)
    if not listening.state.unnamed:
        assert held == all_held


def test_releases_before_event_maps(golden: Path) -> None:
    """Each format of older releases, and its neighbours in one stream, is claimed as sets would."""
    path = golden / "vllm" / "legacy_formats.jsonl"
    if not path.exists():
        pytest.skip("no recording of older formats")
    by_producer: dict[tuple[str, int | None], list[bytes]] = {}
    for line in json_lines(path):
        at = line["producer"], line.get("dp_rank")
        by_producer.setdefault(at, []).append(parse_live(frames_of(line)).payload)
    for (producer, dp_rank), payloads in by_producer.items():
        listening, fold = Listener(EngineKind.VLLM, dp_rank=dp_rank or 0), Fold()
        for seq, payload in enumerate(payloads):
            listening.live_payload(seq, payload)
            fold.apply(decode_batch(payload))
            state = listening.state
            if not state.unnamed and not state.skips:
                assert listening.held() == fold.claims(), producer
        assert listening.status.counters.batches == len(payloads)


def test_namespaces_of_adapter_and_salt(golden: Path) -> None:
    path = golden / "vllm" / "lora.jsonl"
    if not path.exists():
        pytest.skip("no recording with adapters")
    listening = listen(path)
    tokens = next(
        event.token_ids
        for frames in published(path)
        for event in decode_batch(parse_live(frames).payload).events
        if isinstance(event, BlockStored)
    )
    for adapter, salt, blocks in [
        (None, None, 2), ("ad1", None, 2), ("ad1", "s1", 2), ("ad2", None, 2),
        (None, "s1", 0), ("ad2", "s1", 0), ("ad3", None, 0),
    ]:  # fmt: skip
        prompt = Prompt(pack_tokens(tokens), MODEL, adapter, salt)
        (match,) = listening.index.match(prompt, [listening.rank], 0.0)
        assert match.gpu_blocks == blocks, (adapter, salt)
    assert listening.index.stats().key_spaces == 4
