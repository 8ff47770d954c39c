"""Folding the events of each recorded SGLang scenario gives what the engine's own tree holds."""

from pathlib import Path
from typing import Any

import pytest

from indexer.fleet_index import FleetIndex
from indexer.match import Prompt
from indexer.trust import Trust
from protocol import (
    BlockStored,
    EngineHash,
    EngineKind,
    Rank,
    Tier,
    WorkerId,
    WorkerSpec,
    decode_batch,
    normalise_hash,
    pack_tokens,
)
from tests.recordings import json_lines, sglang_scenarios

RANK = Rank(WorkerId("w"))
COLLIDING = "ns_extra_key_hash_collision"
TIERS = {"GPU": Tier.GPU, "CPU_PINNED": Tier.HOST}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    if "scenario" in metafunc.fixturenames:
        paths = sglang_scenarios(golden)
        metafunc.parametrize("scenario", paths, ids=lambda path: path.stem)


def fleet(meta: dict[str, Any]) -> FleetIndex:
    index = FleetIndex()
    spec = WorkerSpec(RANK.worker, "http://w", "m", EngineKind.SGLANG, block_size=meta["page_size"])
    index.add_worker(spec, 0.0)
    index.set_trust(RANK, Trust.EXACT, 0.0)
    return index


def recorded(line: dict[str, Any]) -> dict[str, set[EngineHash]]:
    return {
        medium: {normalise_hash(value) for value in line["residency"][medium]} for medium in TIERS
    }


def held(index: FleetIndex) -> dict[str, set[EngineHash]]:
    residency = index.residency(RANK)
    return {medium: set(residency[tier]) for medium, tier in TIERS.items()}


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
        return Prompt(pack_tokens(tokens), "m", event.lora_name, event.cache_salt)


def assert_matches(index: FleetIndex, chains: Chains, truth: dict[str, set[EngineHash]]) -> None:
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
        (match,) = index.match(chains.prompt(path), [RANK], 0.0)
        assert (match.gpu_blocks, match.host_pinned_blocks) == (gpu, host), path
        assert match.storage_blocks == match.observed_blocks == match.predicted_blocks == 0


def test_residency(scenario: Path) -> None:
    meta, *lines = json_lines(scenario)
    if scenario.stem == COLLIDING:
        pytest.skip("two namespaces share one hash: after the first removal a set holds less")
    index, chains = fleet(meta["meta"]), Chains()
    for line in lines:
        if "payload_hex" in line:
            batch = decode_batch(bytes.fromhex(line["payload_hex"]))
            index.apply(RANK, batch, 0.0)
            for event in batch.events:
                if isinstance(event, BlockStored):
                    chains.note(event)
            index.check()
        if "residency" in line:
            truth = recorded(line)
            assert held(index) == truth, line["op"]
            assert_matches(index, chains, truth)


def test_colliding_namespaces_never_claim_what_no_copy_holds(golden: Path) -> None:
    path = golden / "sglang" / f"{COLLIDING}.jsonl"
    if not path.exists():
        pytest.skip(f"no recording {COLLIDING}")
    meta, *lines = json_lines(path)
    index = fleet(meta["meta"])
    for line in lines:
        if "payload_hex" in line:
            index.apply(RANK, decode_batch(bytes.fromhex(line["payload_hex"])), 0.0)
        truth = recorded(line)
        assert all(hashes <= truth[medium] for medium, hashes in held(index).items())
    index.check()


def test_a_silent_refill_is_seen_when_the_host_copy_goes(golden: Path) -> None:
    path = golden / "sglang" / "prefix0519_l3_refill_silent.jsonl"
    if not path.exists():
        pytest.skip("no recording of a silent refill")
    meta, *lines = json_lines(path)
    index = fleet(meta["meta"])
    for line in lines:
        if "payload_hex" in line:
            index.apply(RANK, decode_batch(bytes.fromhex(line["payload_hex"])), 0.0)
    (state,) = index.rank_states(0.0)
    assert state.unknown_removals[Tier.HOST] == 2
    (finding,) = index.findings(0.0)
    assert finding.evidence["removed_host_blocks_never_stored"] == 2
