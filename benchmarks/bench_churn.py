"""Memory while millions of blocks pass through the index: it follows the blocks that live, not those that lived.

Why: a table that keeps a trace of each block that ever was ends the process after days, and no shorter run shows
it. Five million distinct blocks pass through 50,000 live ones in each history; memory is looked at while they do. The
unit is the process's resident memory, so this needs Linux; each history has a process of its own. Ends with 1 where
memory grows with history, where more is held than lives, or where anything is left when all has gone.
"""

import gc
import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.histories import branching, late, never_gone
from benchmarks.measurement import Measurement, bounded, main, measured
from indexer import FleetIndex, IndexLimits, Trust
from protocol import BlockStored, EventBatch, Rank, WorkerId, WorkerSpec

NUM_BLOCKS, NUM_LIVE = 5_000_000, 50_000
NUM_QUICK = 1_000_000
_NUM_LOOKS = 20
_PAGE_BYTES = 4096
_IN_EVENT = 16
MOST_GROWTH = 1.15
"""The largest of the second half of the looks, by the largest of the first half."""
RANK = Rank(WorkerId("w"))


@dataclass(frozen=True, slots=True)
class Course:
    """What a history led to.

    Attributes:
        bytes_a_live_block: at the end, before the last of them go.
        growth: of memory in the second half of the history.
        most_held: hashes held at any look.
        residue: blocks, hashes and parked blocks that are left when all has gone.
        estimated: bytes that the index said it took, by those it took, at the last look.
    """

    bytes_a_live_block: float
    growth: float
    most_held: int
    residue: int
    estimated: float


def follow(history: str, num_blocks: int, num_live: int) -> Course:
    """Let a history pass, in this process."""
    claims = num_live if history == "never_gone" else 1_000_000_000
    index = FleetIndex(IndexLimits(claims=claims))
    index.add_worker(WorkerSpec(RANK.worker, "http://w", "m", block_size=1), 0.0)
    index.set_trust(RANK, Trust.EXACT, 0.0)
    before, said, num_stored = _resident_bytes(), 0, 0
    looks: list[int] = []
    held: list[int] = []
    for number, batch in enumerate(_batches(history, num_blocks, num_live)):
        index.apply(RANK, batch, number * 0.001)
        num_stored += sum(
            len(one.block_hashes) for one in batch.events if isinstance(one, BlockStored)
        )
        if number % 1_000 == 0:
            index.tick(number * 0.001)
        if num_stored * _NUM_LOOKS >= num_blocks * (len(looks) + 1):
            looks.append(_resident_bytes() - before)
            held.append(index.stats().held)
            said = index.size_bytes()
    if history == "never_gone":
        index.remove_worker(RANK.worker)
    index.sweep(1_000_000_000)
    index.check()
    half = len(looks) // 2
    return Course(
        bytes_a_live_block=looks[-1] / held[-1],
        growth=max(looks[half:]) / max(looks[:half]),
        most_held=max(held),
        residue=_residue(index),
        estimated=said / looks[-1],
    )


def _batches(history: str, num_blocks: int, num_live: int) -> Iterable[EventBatch]:
    made: dict[str, Iterator[EventBatch]] = {
        "branching": branching(num_blocks, num_live),
        "never_gone": never_gone(num_blocks),
        "late": late(num_blocks, num_live),
    }
    return made[history]


def _residue(index: FleetIndex) -> int:
    stats = index.stats()
    unnamed = sum(state.unnamed for state in index.rank_states(0.0))
    return stats.blocks + stats.held + stats.orphans + unnamed


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_blocks = NUM_QUICK if quick else NUM_BLOCKS
    rows: list[Measurement] = []
    for history in ("branching", "never_gone", "late"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            course = pool.apply(follow, (history, num_blocks, NUM_LIVE))
        rows += [
            measured(f"{history}_bytes", "B/live block", [course.bytes_a_live_block]),
            bounded(f"{history}_growth", "×", course.growth, MOST_GROWTH),
            bounded(f"{history}_held", "hashes", course.most_held, NUM_LIVE + 2 * _IN_EVENT),
            bounded(f"{history}_residue", "entries", course.residue, 0),
            measured(f"{history}_estimate", "× resident", [course.estimated]),
        ]
    return rows


if __name__ == "__main__":
    main("Memory under churn", run)
