"""The index's memory: bytes per claim, and what it costs to make, drop, evict, dump and load a million claims.

Why: a bound on claims is a bound on memory only where the bytes of a claim are known, and nothing that is done
with a million of them may keep the event loop. A claim is one block on one tier of one rank. Bytes are the
growth of the process's resident memory, so this needs Linux; each figure has a process of its own. Baseline:
a dictionary of sets, which keeps no engine hashes and knows neither tiers nor lookups.
"""

import gc
import multiprocessing
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time_ns

from benchmarks.fleet_of_claims import MODEL
from benchmarks.measurement import Measurement, main, measured
from indexer.dump import rank_lines
from indexer.dump_format import EndLine, HeaderLine, write_line
from indexer.fleet_index import FleetIndex
from indexer.limits import IndexLimits
from indexer.load import IndexLoad
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockStored,
    EventBatch,
    Rank,
    WorkerId,
    WorkerSpec,
)

_IN_EVENT = 128
_PAGE_BYTES = 4096
_SPREADS = ((1, 1), (8, 1), (256, 256))  # ranks, and how many of them hold the same blocks


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def index_of(num_ranks: int, limits: IndexLimits | None = None) -> tuple[FleetIndex, list[Rank]]:
    """An index with so many ranks that hold nothing."""
    index = FleetIndex(limits or IndexLimits(claims=1_000_000_000))
    for i in range(num_ranks):
        spec = WorkerSpec(WorkerId(f"w{i}"), f"http://w{i}", MODEL, block_size=1)
        index.add_worker(spec, 0.0)
        index.set_trust(Rank(spec.worker), Trust.EXACT, 0.0)
    return index, [Rank(WorkerId(f"w{i}")) for i in range(num_ranks)]


def chain(num_blocks: int, seed: int) -> Iterator[EventBatch]:
    """One chain of distinct blocks of one token, 128 an event."""
    rng = random.Random(seed)
    parent: int | None = None
    for start in range(0, num_blocks, _IN_EVENT):
        count = min(_IN_EVENT, num_blocks - start)
        hashes = [rng.getrandbits(64) for _ in range(count)]
        tokens = [rng.getrandbits(20) for _ in range(count)]
        yield EventBatch(0.0, [BlockStored(hashes, parent, tokens, 1, "GPU")], 0)
        parent = hashes[-1]


def store(index: FleetIndex, rank: Rank, num_blocks: int, seed: int = 1) -> float:
    """Store a chain; CPU time in nanoseconds a block, that of making the events apart."""
    spent = 0
    for batch in chain(num_blocks, seed):
        start = process_time_ns()
        index.apply(rank, batch, 1.0, 0)
        spent += process_time_ns() - start
    return spent / num_blocks


def bytes_per_claim(num_claims: int, num_ranks: int, num_sharing: int) -> tuple[float, float]:
    """Bytes, and nanoseconds to store, a claim."""
    index, ranks = index_of(num_ranks)
    before = resident_bytes()
    spent = [
        store(index, rank, num_claims // num_ranks, seed=i // num_sharing)
        for i, rank in enumerate(ranks)
    ]
    return (resident_bytes() - before) / num_claims, sum(spent) / len(spent)


def bytes_of_baseline(num_claims: int) -> float:
    """Bytes an entry of a dictionary of sets."""
    rng = random.Random(1)
    before = resident_bytes()
    holders = {rng.getrandbits(64): {0} for _ in range(num_claims)}
    assert len(holders) == num_claims
    return (resident_bytes() - before) / num_claims


def longest_ms(steps: Iterator[object]) -> tuple[float, float]:
    """The longest of some steps, and all of them, in milliseconds."""
    longest = total = 0
    while True:
        start = process_time_ns()
        if next(steps, None) is None:
            return longest / 1e6, total / 1e6
        spent = process_time_ns() - start
        longest, total = max(longest, spent), total + spent


def clear(num_claims: int) -> tuple[float, float]:
    """Milliseconds that a clear takes, and the longest of the ticks that sweep up behind it."""
    index, (rank,) = index_of(1)
    store(index, rank, num_claims)
    gc.collect()
    start = process_time_ns()
    index.apply(rank, EventBatch(0.0, [AllBlocksCleared()], 0), 2.0)
    cleared_ms = (process_time_ns() - start) / 1e6
    ticks = iter(lambda: None if index.sweep(4_096) else True, None)
    return cleared_ms, longest_ms(ticks)[0]


def evict(num_claims: int) -> float:
    """Nanoseconds to store a block in a full index, where an older one goes for it."""
    index, (rank,) = index_of(1, IndexLimits(claims=num_claims))
    store(index, rank, num_claims)
    return store(index, rank, num_claims // 4, seed=2)


def dump_and_load(num_claims: int) -> tuple[float, float, float, float]:
    """Bytes, and nanoseconds to tell and to load, a claim; and the milliseconds of the copy."""
    index, (rank,) = index_of(1)
    store(index, rank, num_claims)
    gc.collect()
    start = process_time_ns()
    snapshot = index.snapshot(rank, 2.0)
    copied_ms = (process_time_ns() - start) / 1e6
    assert snapshot is not None
    other, _ = index_of(1)
    loading = IndexLoad(other, 2.0)
    loading.feed(write_line(HeaderLine()))
    size = told_ns = loaded_ns = 0
    lines = rank_lines(snapshot, [(0, 0)], 2.0)
    while True:
        start = process_time_ns()
        line = next(lines, None)
        raw = b"" if line is None else write_line(line)
        told_ns += process_time_ns() - start
        if not raw:
            break
        start = process_time_ns()
        loading.feed(raw)
        loaded_ns += process_time_ns() - start
        size += len(raw)
    loading.feed(write_line(EndLine(ranks=1)))
    loading.finish()
    assert other.stats().held == num_claims
    return size / num_claims, told_ns / num_claims, loaded_ns / num_claims, copied_ms


def apart(work: Callable[..., object], *arguments: int) -> tuple[float, ...]:
    """Do the work in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(work, arguments)
    return found if isinstance(found, tuple) else (float(found),)  # type: ignore[arg-type]


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    size, num_runs = (100_000, 1) if quick else (1_000_000, 3)
    peer = measured("dict_of_sets_bytes", "B/entry", apart(bytes_of_baseline, size))
    rows = [peer]
    for num_ranks, num_sharing in _SPREADS:
        found = [apart(bytes_per_claim, size, num_ranks, num_sharing) for _ in range(num_runs)]
        name = f"{num_ranks}_ranks" + ("_sharing" if num_sharing > 1 else "")
        rows.append(measured(f"claim_bytes_{name}", "B/claim", [one[0] for one in found], peer))
        rows.append(measured(f"store_{name}_ns", "ns/claim", [one[1] for one in found]))
    clears = [apart(clear, size) for _ in range(num_runs)]
    rows.append(measured("clear_ms", "ms", [one[0] for one in clears]))
    rows.append(measured("longest_sweep_ms", "ms", [one[1] for one in clears]))
    evictions = [apart(evict, size)[0] for _ in range(num_runs)]
    rows.append(measured("store_in_full_index_ns", "ns/claim", evictions))
    dumps = [apart(dump_and_load, size) for _ in range(num_runs)]
    names = (
        ("dump_bytes", "B/claim"),
        ("dump_ns", "ns/claim"),
        ("load_ns", "ns/claim"),
        ("copy_ms", "ms"),
    )
    for place, (name, unit) in enumerate(names):
        rows.append(measured(name, unit, [one[place] for one in dumps]))
    return rows


if __name__ == "__main__":
    main("Memory of the index", run)
