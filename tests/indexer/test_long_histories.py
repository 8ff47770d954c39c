"""Blocks come, branch off one another and go, by the hundred thousand: tables follow those that live, and nothing is left.

The same histories as in ``benchmarks.bench_churn``, which plays five million blocks and looks at the process's memory.
"""

from collections.abc import Callable, Iterator

import pytest

from benchmarks.histories import branching, late, never_gone
from indexer import FleetIndex, IndexLimits, Trust
from indexer.identity import ClaimSkip
from protocol import EventBatch, Rank, WorkerId, WorkerSpec
from tests.indexer.table_entries import num_entries

RANK = Rank(WorkerId("w"))
NUM_BLOCKS, NUM_LIVE = 200_000, 1_024
SMALL = 250
MOST_ENTRIES = 6 * NUM_LIVE
"""Of all tables: block and holders, hash and block, and the memories of what was, a quarter of what lives each."""


def new_index(claims: int = 1_000_000) -> FleetIndex:
    return FleetIndex(
        IndexLimits(
            claims=claims, orphans=SMALL, unresolved=SMALL, remembered=SMALL, departures=SMALL,
            doubled=SMALL, host_copies=SMALL, cleared_at_once=SMALL,
        )
    )  # fmt: skip


def with_rank(index: FleetIndex) -> FleetIndex:
    index.add_worker(WorkerSpec(RANK.worker, "http://w", "m", block_size=1), 0.0)
    index.set_trust(RANK, Trust.EXACT, 0.0)
    return index


def follow(index: FleetIndex, batches: Iterator[EventBatch]) -> tuple[int, int]:
    """Hear it all; the most entries and the most hashes there were at any look."""
    most_entries = most_held = 0
    for number, batch in enumerate(batches):
        index.apply(RANK, batch, number * 0.001)
        if number % 100 == 0:
            index.tick(number * 0.001)
            most_entries = max(most_entries, num_entries(index))
            most_held = max(most_held, index.stats().held)
    index.check()
    return most_entries, most_held


@pytest.mark.parametrize("history", [branching, late])
def test_what_comes_and_goes(history: Callable[[int, int], Iterator[EventBatch]]) -> None:
    """Ancestors go before what hangs on them: as often as not, or always."""
    index = with_rank(new_index())
    most_entries, most_held = follow(index, history(NUM_BLOCKS, NUM_LIVE))
    assert NUM_LIVE <= most_held <= NUM_LIVE + 32
    assert most_entries <= MOST_ENTRIES
    stats, (state,) = index.stats(), index.rank_states(0.0)
    assert (stats.blocks, stats.held, stats.orphans, state.unnamed) == (0, 0, 0, 0)
    assert not state.unknown_removals


def test_what_never_goes_ends_at_the_bound() -> None:
    index = with_rank(new_index(claims=NUM_LIVE))
    most_entries, most_held = follow(index, never_gone(NUM_BLOCKS))
    assert most_held <= NUM_LIVE
    assert most_entries <= MOST_ENTRIES
    assert index.stats().skips[ClaimSkip.EVICTED] == NUM_BLOCKS - index.stats().held


@pytest.mark.parametrize("history", [branching, late])
def test_a_worker_that_leaves_takes_everything_along(
    history: Callable[[int, int], Iterator[EventBatch]],
) -> None:
    index = new_index()
    before = num_entries(index)
    follow(with_rank(index), history(10_000, NUM_LIVE))
    index.remove_worker(RANK.worker)
    assert index.sweep(NUM_BLOCKS)
    assert num_entries(index) - before <= 8, "beside a free slot and what was skipped"
    index.check()
