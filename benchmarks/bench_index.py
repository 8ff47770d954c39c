"""The block index: nanoseconds per block stored and removed, per matched block, and per decoded block.

Why: events of a whole fleet go through one process; at 10,000 blocks a second and worker, 64 workers
need 1.6 µs a block. Baseline in the same run: a plain dictionary of sets, which does no hashing, keeps no
engine hashes and answers no lookups across ranks.
"""

from collections.abc import Callable
from time import process_time_ns

from benchmarks.fleet_of_claims import (
    BLOCK_SIZE,
    MODEL,
    empty_index,
    hashes_of,
    removals,
    stores,
    tokens_of,
)
from benchmarks.measurement import Measurement, main, measured
from indexer.match import Prompt
from protocol import decode_batch, encode_batch, pack_tokens

NUM_BLOCKS = 4_096
BLOCKS_PER_EVENT = (1, 16)


def cpu_ns(work: Callable[[], object]) -> int:
    """CPU time of one call, nanoseconds."""
    start = process_time_ns()
    work()
    return process_time_ns() - start


def baseline(num_runs: int) -> Measurement:
    """Add and drop each hash in a dictionary of sets."""
    hashes = hashes_of(NUM_BLOCKS, 1)

    def once() -> None:
        holders: dict[int, set[int]] = {}
        for block_hash in hashes:
            holders.setdefault(block_hash, set()).add(0)

    return measured(
        "dict_of_sets_store_ns", "ns/block", [cpu_ns(once) / NUM_BLOCKS for _ in range(num_runs)]
    )


def ingest(blocks_per_event: int, num_runs: int, peer: Measurement) -> list[Measurement]:
    """Decode, store and remove one chain of 4,096 blocks of 64 tokens."""
    stored = stores(tokens_of(NUM_BLOCKS, 1), blocks_per_event, "GPU", 1)
    removed = removals(NUM_BLOCKS, blocks_per_event, "GPU", 1)
    payload = encode_batch(stored)
    decode_ns, store_ns, remove_ns = [], [], []
    for _ in range(num_runs):
        index, ranks = empty_index(1)
        decode_ns.append(cpu_ns(lambda: decode_batch(payload)) / NUM_BLOCKS)
        store_ns.append(cpu_ns(lambda: index.apply(ranks[0], stored, 1.0)) / NUM_BLOCKS)  # noqa: B023
        remove_ns.append(cpu_ns(lambda: index.apply(ranks[0], removed, 2.0)) / NUM_BLOCKS)  # noqa: B023
    suffix = f"_{blocks_per_event}_per_event_ns"
    return [
        measured("decode" + suffix, "ns/block", decode_ns),
        measured("store" + suffix, "ns/block", store_ns, peer),
        measured("remove" + suffix, "ns/block", remove_ns),
    ]


def lookups(num_blocks: int, num_ranks: int, num_runs: int) -> Measurement:
    """Match one prompt of which every rank holds a share, the longest all of it."""
    index, ranks = empty_index(num_ranks)
    tokens = tokens_of(num_blocks, 2)
    for number, rank in enumerate(ranks, start=1):
        held = num_blocks * number // num_ranks * BLOCK_SIZE
        index.apply(rank, stores(tokens[:held], 16, "GPU", 2), 1.0)
    prompt = Prompt(pack_tokens(tokens), MODEL)
    prompt.keys(BLOCK_SIZE)
    assert index.match(prompt, ranks, 2.0)[-1].gpu_blocks == num_blocks

    def once() -> None:
        for _ in range(20):
            index.match(prompt, ranks, 2.0)

    runs = [cpu_ns(once) / 20 / 1e3 for _ in range(num_runs)]
    return measured(f"match_{num_blocks}_blocks_{num_ranks}_ranks_us", "µs", runs)


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_runs = 5 if quick else 15
    rows = [baseline(num_runs)]
    for blocks_per_event in BLOCKS_PER_EVENT:
        rows += ingest(blocks_per_event, num_runs, rows[0])
    rows += [lookups(blocks, ranks, num_runs) for blocks in (128, 1024) for ranks in (8, 64)]
    return rows


if __name__ == "__main__":
    main("Block index", run)
