"""Listening to each recorded SGLang scenario gives what the engine's own tree holds: frames to claims.

Heard live, a listener agrees after every operation; one that joins late, or misses some of it, agrees when the
replay is over.
"""

from collections.abc import Iterator
from itertools import pairwise
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
)
from tests.conformance.listening import MODEL, Listener
from tests.recordings import json_lines, sglang_scenarios

COLLIDING = "ns_extra_key_hash_collision"
"""Two namespaces share one hash: after the first removal a set holds less, and never more."""
TIERS = {"GPU": Tier.GPU, "CPU_PINNED": Tier.HOST}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    if "scenario" in metafunc.fixturenames:
        paths = sglang_scenarios(golden)
        metafunc.parametrize("scenario", paths, ids=lambda path: path.stem)


def listener(meta: dict[str, Any], *, has_replay: bool = False) -> Listener:
    return Listener(EngineKind.SGLANG, block_size=meta["page_size"], has_replay=has_replay)


def payloads(lines: list[dict[str, Any]]) -> Iterator[tuple[int, bytes]]:
    """Numbers and payloads in order; recordings without numbers were dense."""
    published = [line for line in lines if "payload_hex" in line]
    for number, line in enumerate(published):
        yield line.get("seq", number), bytes.fromhex(line["payload_hex"])


def recorded(line: dict[str, Any]) -> dict[str, set[EngineHash]]:
    return {
        medium: {normalise_hash(value) for value in line["residency"][medium]} for medium in TIERS
    }


def held(listening: Listener) -> dict[str, set[EngineHash]]:
    claims = listening.held()
    return {medium: claims[tier] for medium, tier in TIERS.items()}


class Chains:
    """Every chain of blocks that a scenario announced, by brute force: hash → (parent, its tokens)."""

    def __init__(self) -> None:
        self.blocks: dict[EngineHash, tuple[EngineHash | None, list[int], BlockStored]] = {}

    def note(self, event: BlockStored) -> None:
        parent = event.parent_hash
        for i, block_hash in enumerate(event.block_hashes):
            start = i * event.block_size
            tokens = list(event.token_ids[start : start + event.block_size + event.is_eagle])
            self.blocks.setdefault(block_hash, (parent, tokens, event))
            parent = block_hash

    def path(self, block_hash: EngineHash) -> list[EngineHash] | None:
        """Hashes from the root to the block; None if a parent was never announced."""
        path: list[EngineHash] = []
        at: EngineHash | None = block_hash
        while at is not None:
            if at not in self.blocks:
                return None
            path.append(at)
            at = self.blocks[at][0]
        return path[::-1]

    def prompt(self, path: list[EngineHash]) -> Prompt:
        event = self.blocks[path[-1]][2]
        tokens: list[int] = []
        for block_hash in path:
            block = self.blocks[block_hash][1]
            tokens += block[1:] if event.is_eagle and tokens else block
        return Prompt(pack_tokens(tokens), MODEL, event.lora_name, event.cache_salt)


def assert_matches(listening: Listener, chains: Chains, truth: dict[str, set[EngineHash]]) -> None:
    """For every chain, the match is the run of leading blocks that the engine holds on any tier."""
    for block_hash in chains.blocks:
        path = chains.path(block_hash)
        if path is None:
            continue
        gpu = host = 0
        for name in path:
            if name in truth["GPU"]:
                gpu += 1
            elif name in truth["CPU_PINNED"]:
                host += 1
            else:
                break
        (match,) = listening.index.match(chains.prompt(path), [listening.rank], 0.0)
        assert (match.gpu_blocks, match.host_pinned_blocks) == (gpu, host), path
        assert match.storage_blocks == match.observed_blocks == match.predicted_blocks == 0


def test_residency(scenario: Path) -> None:
    meta, *lines = json_lines(scenario)
    listening, chains = listener(meta["meta"]), Chains()
    numbered = payloads(lines)
    for line in lines:
        if "payload_hex" in line:
            seq, payload = next(numbered)
            listening.live_payload(seq, payload)
            for event in decode_batch(payload).events:
                if isinstance(event, BlockStored):
                    chains.note(event)
        if "residency" in line:
            truth = recorded(line)
            assert_held(listening, line, is_colliding=scenario.stem == COLLIDING)
            if scenario.stem != COLLIDING:
                assert_matches(listening, chains, truth)
    if any(payloads(lines)):
        assert listening.status.trust is Trust.EXACT


@pytest.mark.parametrize("has_topic_frame", [True, False])
def test_residency_of_a_late_listener(scenario: Path, has_topic_frame: bool) -> None:
    """Everything by replay, in either framing, with the last batch heard live in the midst of it."""
    meta, *lines = json_lines(scenario)
    listening, published = listener(meta["meta"], has_replay=True), list(payloads(lines))
    assert listening.asked == [0]
    for seq, payload in published[-1:]:
        listening.live_payload(seq, payload)
    listening.replay_payloads(published, has_topic_frame=has_topic_frame)
    assert_end(listening, lines, is_colliding=scenario.stem == COLLIDING)


def test_residency_of_a_listener_that_missed_batches(scenario: Path) -> None:
    """Every second batch is lost on its way, and replayed from the first missing one on."""
    meta, *lines = json_lines(scenario)
    published = list(payloads(lines))
    if len(published) < 3:
        pytest.skip("too few batches to miss one")
    listening = listener(meta["meta"], has_replay=True)
    listening.replay_payloads([])
    heard = [*published[::2], published[-1]]
    for before, (seq, payload) in pairwise([(-1, b""), *heard]):
        listening.live_payload(seq, payload)
        if seq > before[0] + 1:
            assert listening.asked[-1] == before[0] + 1
            listening.replay_payloads(one for one in published if before[0] < one[0] <= seq)
    assert_end(listening, lines, is_colliding=scenario.stem == COLLIDING)


def assert_held(listening: Listener, line: dict[str, Any], *, is_colliding: bool) -> None:
    """What is claimed is what the engine held after the operation."""
    truth, claims = recorded(line), held(listening)
    if is_colliding:
        assert all(hashes <= truth[medium] for medium, hashes in claims.items()), line["op"]
    else:
        assert claims == truth, line["op"]


def assert_end(listening: Listener, lines: list[dict[str, Any]], *, is_colliding: bool) -> None:
    """The listener is sure, and agrees with the engine as of the last line."""
    assert listening.status.trust is Trust.EXACT
    residency = [line for line in lines if "residency" in line]
    if residency:
        assert_held(listening, residency[-1], is_colliding=is_colliding)
    assert listening.held() == listening.tap.fold.claims()


def test_a_silent_refill_is_seen_when_the_host_copy_goes(golden: Path) -> None:
    path = golden / "sglang" / "prefix0519_l3_refill_silent.jsonl"
    if not path.exists():
        pytest.skip("no recording of a silent refill")
    meta, *lines = json_lines(path)
    listening = listener(meta["meta"])
    for one in payloads(lines):
        listening.live_payload(*one)
    assert listening.state.unknown_removals[Tier.HOST] == 2
    (finding,) = listening.findings()
    assert finding.evidence["removed_host_blocks_never_stored"] == 2
