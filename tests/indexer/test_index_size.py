"""The memory that the index says it takes is what it takes, within a fifth."""

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from indexer import FleetIndex, IndexLimits, Prompt, Trust
from protocol import (
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    KvEvent,
    Rank,
    WorkerId,
    WorkerSpec,
    decode_batch,
    encode_batch,
    pack_tokens,
)

IN_EVENT = 128
WITHIN = 0.2
GRAIN = 16
"""Bytes that the allocator rounds up to."""


@dataclass(frozen=True)
class Holding:
    """What ranks hold, each in events as they come from the wire.

    Attributes:
        num_sharing: ranks that hold the same blocks.
        num_gone: blocks that came and went before.
    """

    num_ranks: int
    num_blocks: int
    num_sharing: int = 1
    media: tuple[str, ...] = ("GPU",)
    hash_bytes: int = 8
    salt: str | None = None
    num_gone: int = 0


def chain(holding: Holding, seed: int, num_blocks: int) -> Iterator[BlockStored]:
    """One chain of distinct blocks of one token."""
    rng = random.Random(seed)
    parent: EngineHash | None = None
    for start in range(0, num_blocks, IN_EVENT):
        count = min(IN_EVENT, num_blocks - start)
        hashes: list[EngineHash] = [
            rng.getrandbits(64) if holding.hash_bytes == 8 else rng.randbytes(holding.hash_bytes)
            for _ in range(count)
        ]
        tokens = [rng.getrandbits(20) for _ in range(count)]
        yield BlockStored(hashes, parent, tokens, 1, "GPU", cache_salt=holding.salt)
        parent = hashes[-1]


def hear(index: FleetIndex, rank: Rank, event: KvEvent) -> None:
    index.apply(rank, decode_batch(encode_batch(EventBatch(1.0, [event], 0))), 1.0)


def hold(index: FleetIndex, holding: Holding) -> None:
    """All of them come to hold their blocks."""
    for i in range(holding.num_ranks):
        rank = Rank(WorkerId(f"w{i}"))
        for event in chain(holding, -1 - i, holding.num_gone):
            hear(index, rank, replace(event, parent_hash=None))
            hear(index, rank, BlockRemoved(event.block_hashes, "GPU"))
        for event in chain(holding, i // holding.num_sharing, holding.num_blocks):
            for medium in holding.media:
                hear(index, rank, replace(event, medium=medium))


def index_with_ranks(num_ranks: int, trust: Trust = Trust.EXACT) -> FleetIndex:
    index = FleetIndex(IndexLimits(claims=1_000_000_000))
    for i in range(num_ranks):
        spec = WorkerSpec(WorkerId(f"w{i}"), f"http://w{i}", "m", block_size=1)
        index.add_worker(spec, 0.0)
        index.set_trust(spec.ranks[0], trust, 0.0)
    return index


def assert_near(fill: Callable[[], FleetIndex]) -> None:
    """What the index says beside what it takes."""
    hold(
        index_with_ranks(1), Holding(1, 10, media=("GPU", "CPU_PINNED"))
    )  # whatever is made once is made
    gc.collect()
    tracemalloc.start()
    try:
        index = fill()
        gc.collect()
        taken = sum(-(-trace.size // GRAIN) * GRAIN for trace in tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
    said = index.size_bytes()
    assert 1 - WITHIN < said / taken < 1 + WITHIN, f"{said / taken:.2f}: {said:,} of {taken:,}"


@pytest.mark.parametrize(
    "holding",
    [
        *(Holding(1, number) for number in (1_000, 2_700, 6_000, 11_000)),
        Holding(8, 1_000),
        Holding(32, 300, num_sharing=32),
        Holding(96, 100, num_sharing=128),
        Holding(4, 1_200, media=("GPU", "CPU_PINNED")),
        Holding(4, 1_200, hash_bytes=32),
        Holding(4, 1_200, salt="s"),
        Holding(1, 4_000, num_gone=20_000),
        Holding(64, 0),
    ],
    ids=str,
)
def test_claims(holding: Holding) -> None:
    def fill() -> FleetIndex:
        index = index_with_ranks(holding.num_ranks)
        hold(index, holding)
        return index

    assert_near(fill)


@pytest.mark.parametrize("kind", ["observed", "predicted", "doubtful", "parked"])
def test_what_is_held_by_less_than_an_event(kind: str) -> None:
    def fill() -> FleetIndex:
        index = index_with_ranks(1, Trust.EXACT if kind == "predicted" else Trust.JOINED)
        rank, rng = Rank(WorkerId("w0")), random.Random(1)
        if kind == "doubtful":
            hold(index, Holding(1, 4_000))
            index.record_loss(rank, 2.0)
            index.tick(3.0)
        for _ in range(80 if kind != "doubtful" else 0):
            tokens = [rng.getrandbits(20) for _ in range(100)]
            prompt = Prompt(pack_tokens(tokens), "m", None, None)
            if kind == "observed":
                index.observe(rank, prompt, 1.0)
            elif kind == "predicted":
                index.predict(rank, prompt, 1.0)
            else:
                hashes = [rng.getrandbits(64) for _ in tokens]
                hear(index, rank, BlockStored(hashes, rng.getrandbits(64), tokens, 1, "GPU"))
        return index

    assert_near(fill)
