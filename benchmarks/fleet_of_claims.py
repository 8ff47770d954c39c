"""A fleet's knowledge, made from event batches: what the index and decision benchmarks look into."""

import random
from collections.abc import Sequence

from indexer.fleet_index import FleetIndex
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EventBatch, EventSource, Rank, WorkerId, WorkerSpec

MODEL = "bench"
BLOCK_SIZE = 64


def specs(num_workers: int) -> list[WorkerSpec]:
    """Workers of one rank each, all of one model."""
    return [
        WorkerSpec(
            WorkerId(f"w{index}"),
            f"http://127.0.0.1:{20_000 + index}",
            MODEL,
            block_size=BLOCK_SIZE,
            sources=(
                EventSource(
                    Rank(WorkerId(f"w{index}")), f"tcp://127.0.0.1:{index}", "tcp://127.0.0.1:1"
                ),
            ),
        )
        for index in range(num_workers)
    ]


def tokens_of(num_blocks: int, seed: int) -> list[int]:
    """Random token ids of whole blocks."""
    rng = random.Random(seed)
    return [rng.randrange(100_000) for _ in range(num_blocks * BLOCK_SIZE)]


def stores(tokens: Sequence[int], blocks_per_event: int, medium: str, seed: int) -> EventBatch:
    """One chain as an engine announces it, ``blocks_per_event`` parent-linked blocks an event."""
    events = []
    hashes = hashes_of(len(tokens) // BLOCK_SIZE, seed)
    for start in range(0, len(hashes), blocks_per_event):
        chunk = hashes[start : start + blocks_per_event]
        events.append(
            BlockStored(
                chunk,
                hashes[start - 1] if start else None,
                tokens[start * BLOCK_SIZE : (start + len(chunk)) * BLOCK_SIZE],
                BLOCK_SIZE,
                medium,
            )
        )
    return EventBatch(0.0, events, 0)


def removals(num_blocks: int, blocks_per_event: int, medium: str, seed: int) -> EventBatch:
    """The same chain's removal."""
    hashes = hashes_of(num_blocks, seed)
    events = [
        BlockRemoved(hashes[start : start + blocks_per_event], medium)
        for start in range(0, len(hashes), blocks_per_event)
    ]
    return EventBatch(0.0, events, 0)


def hashes_of(num_blocks: int, seed: int) -> list[int]:
    """Engine hashes of a chain."""
    rng = random.Random(~seed)
    return [rng.getrandbits(64) for _ in range(num_blocks)]


def empty_index(num_workers: int) -> tuple[FleetIndex, list[Rank]]:
    """An index that knows the workers and trusts their streams."""
    index = FleetIndex()
    ranks: list[Rank] = []
    for spec in specs(num_workers):
        index.add_worker(spec, 0.0)
        ranks += spec.ranks
        index.set_trust(spec.ranks[0], Trust.EXACT, 0.0)
    return index, ranks
