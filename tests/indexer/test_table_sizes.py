"""No table of the index grows with what came and went: all of them are counted, known ones or not."""

from dataclasses import dataclass

import pytest

from indexer.limits import IndexLimits
from protocol import BlockRemoved, BlockStored, EventBatch, KvEvent
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank
from tests.indexer.table_entries import num_entries

NUM_BLOCKS, NUM_LIVE, IN_EVENT = 200_000, 2_000, 50
PER_LIVE_BLOCK = 6
"""Entries of all tables together: block and holders, hash and block, and the bounded memories below, which
are a quarter of what lives each.
"""
LIMITS = IndexLimits(
    orphans=500, unresolved=500, remembered=500, departures=500, doubled=500, host_copies=500,
    observed=500, predicted=500,
)  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Chains that are stored, served and removed, first in first out.

    Attributes:
        medium: of every other chain; the others are on GPU.
        is_orphan: chains whose parent is not known.
        is_served: requests are seen, too.
    """

    medium: str = "GPU"
    is_orphan: bool = False
    is_served: bool = False


def hear(fleet: SmallFleet, *events: KvEvent) -> None:
    """Without the checks, which cost far more."""
    fleet.index.apply(rank("w"), EventBatch(0.0, events), fleet.now)


def churn(fleet: SmallFleet, traffic: Traffic, num_blocks: int) -> int:
    """Let so many blocks through; the most entries there were."""
    most = 0
    for i in range(0, num_blocks, IN_EVENT):
        medium = traffic.medium if i // IN_EVENT % 2 else "GPU"
        parent = 1 << 40 | i if traffic.is_orphan else None
        hear(fleet, BlockStored(names(i, IN_EVENT), parent, blocks(4 * i, IN_EVENT), SIZE, medium))
        gone = i - NUM_LIVE
        if gone >= 0:
            medium = traffic.medium if gone // IN_EVENT % 2 else "GPU"
            hear(fleet, BlockRemoved(names(gone, IN_EVENT), medium))
        if traffic.is_served and i % 1_000 == 0:
            asked = prompt(blocks(4 * i, IN_EVENT))
            at_decision = fleet.match("w", asked)
            fleet.index.predict(rank("w"), asked, fleet.now)
            fleet.index.observe(rank("w"), asked, fleet.now)
            fleet.index.report(rank("w"), asked, None, at_decision, fleet.now, fleet.now)
        if i % 20_000 == 0:
            fleet.now += 1.0
            fleet.index.tick(fleet.now)
            most = max(most, num_entries(fleet.index))
    return max(most, num_entries(fleet.index))


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(),
        Traffic(medium="CPU"),
        Traffic(is_served=True),
        Traffic(is_orphan=True),
    ],
    ids=str,
)
def test_entries_follow_the_live_blocks(traffic: Traffic) -> None:
    fleet = SmallFleet("w", limits=LIMITS)
    fixed = num_entries(fleet.index)
    most = churn(fleet, traffic, NUM_BLOCKS)
    assert most - fixed <= PER_LIVE_BLOCK * NUM_LIVE, (most, fixed)
    fleet.index.check()
    fleet.clear("w")
    assert fleet.index.sweep(2 * NUM_LIVE)
    assert fleet.index.stats().blocks == 0


def test_an_entry_of_any_table_is_counted() -> None:
    fleet = SmallFleet("w")
    before = num_entries(fleet.index)
    hear(fleet, BlockStored(names(0, 100), None, blocks(0, 100), SIZE, "GPU"))
    assert num_entries(fleet.index) - before >= 200
