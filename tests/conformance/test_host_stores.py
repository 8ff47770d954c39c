"""Recorded engines that announce every copy on HOST are never suspected, and those that do not are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexer.actions import ForgetReason
from indexer.fleet_index import FleetIndex
from indexer.trust import Trust
from protocol import (
    EngineKind,
    EventBatch,
    EventSource,
    Rank,
    Tier,
    WorkerId,
    WorkerSpec,
    decode_batch,
    parse_live,
)
from tests.recordings import frames_of, json_lines, sglang_scenarios, vllm_recordings

RANK = Rank(WorkerId("w"))
SILENT = {"prefix0519_l3_refill_silent": 2, "prefix0519_wt_full_cycle": 1}
"""Scenarios of a release that does not announce refills, with the blocks it refilled and removed."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    files = {"scenario": sglang_scenarios(golden), "recording": vllm_recordings(golden)}
    for name, paths in files.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, paths, ids=lambda path: path.stem)


def fleet(engine: EngineKind) -> FleetIndex:
    index = FleetIndex()
    source = EventSource(RANK, "tcp://w:5557", "tcp://w:5657")
    index.add_worker(WorkerSpec(RANK.worker, "http://w", "m", engine, sources=(source,)), 0.0)
    index.set_trust(RANK, Trust.EXACT, 0.0)
    return index


def sglang_batches(scenario: Path) -> Iterator[EventBatch]:
    for line in json_lines(scenario):
        if "payload_hex" in line:
            yield decode_batch(bytes.fromhex(line["payload_hex"]))


def suspicions(index: FleetIndex) -> dict[str, int | float | str | None]:
    """Kinds of the findings, with the number of removals that no store accounts for."""
    index.tick(100.0)
    index.check()
    return {
        finding.kind.value: finding.evidence.get("removed_host_blocks_never_stored")
        for finding in index.findings(100.0)
    }


def test_sglang_scenarios(scenario: Path) -> None:
    index, silent = fleet(EngineKind.SGLANG), SILENT.get(scenario.stem)
    for batch in sglang_batches(scenario):
        index.apply(RANK, batch, 0.0)
        if silent is None:
            assert suspicions(index) == {}
    assert suspicions(index) == ({} if silent is None else {"host_stores_unannounced": silent})


def test_vllm_recordings(recording: Path) -> None:
    index, last_seq = fleet(EngineKind.VLLM), -1
    for line in json_lines(recording):
        if line.get("kind") == "pub" or "producer" in line:
            message = parse_live(frames_of(line))
            if message.seq <= last_seq:
                index.forget(RANK, ForgetReason.RESTARTED, 0.0)
            last_seq = message.seq
            index.apply(RANK, decode_batch(message.payload), 0.0)
            assert "host_stores_unannounced" not in suspicions(index)


def test_two_namespaces_under_one_hash_are_two_copies(golden: Path) -> None:
    """The second removal is of what is not held any more, and the stores account for it."""
    path = golden / "sglang" / "ns_extra_key_hash_collision.jsonl"
    if not path.exists():
        pytest.skip("no recording of it")
    index = fleet(EngineKind.SGLANG)
    for batch in sglang_batches(path):
        index.apply(RANK, batch, 0.0)
    (state,) = index.rank_states(0.0)
    assert sum(state.unknown_removals.values()) > 0
    assert state.duplicates.keys() & set(Tier)
    assert suspicions(index) == {}
