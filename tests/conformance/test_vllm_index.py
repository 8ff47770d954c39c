"""Folding vLLM's recorded streams gives the recorded end state, full-attention groups alone claiming."""

import json
from pathlib import Path
from typing import Any

import pytest

from indexer.actions import ForgetReason
from indexer.fleet_index import FleetIndex
from indexer.match import Prompt
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EngineKind,
    EventBatch,
    Rank,
    Tier,
    WorkerId,
    WorkerSpec,
    decode_batch,
    normalise_hash,
    pack_tokens,
    parse_live,
    tier_of,
)
from tests.recordings import frames_of, json_lines, vllm_recordings

RANK = Rank(WorkerId("w"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    if "recording" in metafunc.fixturenames:
        paths = [path for path in vllm_recordings(golden) if expected_file(path).exists()]
        metafunc.parametrize("recording", paths, ids=lambda path: path.stem)


def expected_file(recording: Path) -> Path:
    return recording.with_name(f"{recording.stem}.expected.json")


def recorded_hash(value: Any) -> EngineHash:
    return bytes.fromhex(value) if isinstance(value, str) else normalise_hash(value)


def expected_blocks(recording: Path) -> dict[Tier, set[EngineHash]]:
    """Hashes by tier in the groups that make prefix claims."""
    held: dict[Tier, set[EngineHash]] = {tier: set() for tier in Tier}
    for blocks in json.loads(expected_file(recording).read_text())["blocks"]:
        tier = tier_of(blocks["medium"])
        if blocks["kv_cache_spec_kind"] in (None, "full_attention") and tier is not None:
            held[tier] |= {recorded_hash(value) for value in blocks["hashes"]}
    return held


class Fold:
    """Hashes by tier in full-attention groups, folded as plain sets."""

    def __init__(self) -> None:
        self.held: dict[Tier, set[EngineHash]] = {tier: set() for tier in Tier}
        self._sparse: set[int | None] = set()

    def apply(self, batch: EventBatch) -> None:
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.__init__()  # type: ignore[misc]
                continue
            tier = tier_of(event.medium)
            assert tier is not None
            if isinstance(event, BlockRemoved):
                if event.group_idx not in self._sparse:
                    self.held[tier] -= set(event.block_hashes)
            elif event.spec_kind in (None, "full_attention"):
                self.held[tier] |= set(event.block_hashes)
            else:
                self._sparse.add(event.group_idx)


def fold(index: FleetIndex, recording: Path) -> None:
    """Apply every live message; a number that falls back is a restart.

    As long as every parent is known, the claims equal plain sets after every message.
    """
    last_seq, plain = -1, Fold()
    for line in json_lines(recording):
        if line["kind"] != "pub":
            continue
        message = parse_live(frames_of(line))
        if message.seq <= last_seq:
            index.forget(RANK, ForgetReason.RESTARTED, 0.0)
            plain = Fold()
        last_seq = message.seq
        batch = decode_batch(message.payload)
        index.apply(RANK, batch, 0.0)
        plain.apply(batch)
        index.check()
        if not index.rank_states(0.0)[0].unnamed:
            assert {tier: set(h) for tier, h in index.residency(RANK).items()} == plain.held


def fleet() -> FleetIndex:
    index = FleetIndex()
    index.add_worker(WorkerSpec(RANK.worker, "http://w", "m", EngineKind.VLLM), 0.0)
    index.set_trust(RANK, Trust.EXACT, 0.0)
    return index


def test_end_state(recording: Path) -> None:
    index = fleet()
    fold(index, recording)
    (state,) = index.rank_states(0.0)
    expected = expected_blocks(recording)
    held = {tier: set(hashes) for tier, hashes in index.residency(RANK).items()}
    if state.unnamed:
        # Recorded from a number above 0: children of blocks announced before are parked, not claimed.
        assert state.orphans == state.unnamed
        assert all(held[tier] <= expected[tier] for tier in Tier)
        missing = sum(len(expected[tier] - held[tier]) for tier in Tier)
        assert missing <= state.unnamed
    else:
        assert held == expected
    assert not [finding.kind for finding in index.findings(0.0)]


def test_namespaces_of_adapter_and_salt(golden: Path) -> None:
    path = golden / "vllm" / "lora.jsonl"
    if not path.exists():
        pytest.skip("no recording with adapters")
    index = fleet()
    fold(index, path)
    tokens = next(
        event.token_ids
        for line in json_lines(path)
        if line["kind"] == "pub"
        for event in decode_batch(parse_live(frames_of(line)).payload).events
        if isinstance(event, BlockStored)
    )
    for adapter, salt, blocks in [
        (None, None, 2), ("ad1", None, 2), ("ad1", "s1", 2), ("ad2", None, 2),
        (None, "s1", 0), ("ad2", "s1", 0), ("ad3", None, 0),
    ]:  # fmt: skip
        prompt = Prompt(pack_tokens(tokens), "m", adapter, salt)
        (match,) = index.match(prompt, [RANK], 0.0)
        assert match.gpu_blocks == blocks, (adapter, salt)
    assert index.stats().key_spaces == 4
