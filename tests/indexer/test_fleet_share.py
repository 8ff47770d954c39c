"""What is bounded a rank is bounded over the fleet: many ranks keep together what a few would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.fleet_share import UNSHARED, FleetShare
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EventBatch
from tests.indexer.pooled_fleet import SPEAKS, PooledFleet, user
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank
from tests.indexer.table_entries import num_entries

FULL = 4
ALL = 60


def limits(size: int, full_ranks: int = FULL) -> IndexLimits:
    """Every table that is bounded a rank at the same size."""
    return IndexLimits(
        full_ranks=full_ranks, orphans=size, unresolved=size, remembered=size, departures=size,
        doubled=size, host_copies=size, observed=size, predicted=size, cleared_at_once=1_000_000,
    )  # fmt: skip


LIMITS = limits(ALL)


@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(1, 100_000))
def test_shares_of_all_are_the_bound_of_a_few(num_holders: int, full: int, limit: int) -> None:
    share = FleetShare(full)
    share.num_holders = num_holders
    assert share.is_scarce == (num_holders > full)
    assert share.of(limit) == limit or num_holders > full
    assert num_holders * share.of(limit) <= max(full * limit, num_holders)


def test_nothing_is_shared_by_what_stands_alone() -> None:
    assert UNSHARED.of(7) == 7
    assert not UNSHARED.is_scarce


def keep_busy(fleet: SmallFleet, worker: str, seed: int = 0) -> None:
    """Requests, orphans, duplicates, removals: whatever leaves something behind, and no claim."""
    for i in range(seed, seed + 300, 2):
        hashes, tokens = names(i, 2), blocks(4 * i, 2)
        for medium in ("GPU", "CPU"):
            stored = BlockStored(hashes, None, tokens, SIZE, medium)
            gone = BlockRemoved(hashes, medium)
            orphan = BlockStored(names(50_000 + i, 2), 1 << 40 | i, tokens, SIZE, medium)
            lost = BlockRemoved(orphan.block_hashes, medium)
            batch = EventBatch(0.0, [stored, stored, gone, orphan, lost])
            fleet.index.apply(rank(worker), batch, fleet.now)
    for i in range(seed, seed + 100, 10):
        fleet.index.predict(rank(worker), prompt(blocks(1_000_000 + 4 * i, 10)), fleet.now)
        fleet.index.observe(rank(worker), prompt(blocks(2_000_000 + 4 * i, 10)), fleet.now)


def totals(fleet: SmallFleet) -> dict[str, int]:
    stats = fleet.index.stats()
    return {
        "observed": stats.observed,
        "predicted": stats.predicted,
        "orphans": stats.orphans,
    }


def at_most_a_few_full(fleet: SmallFleet) -> bool:
    return all(count <= FULL * ALL for count in totals(fleet).values())


def busy_fleet(num_workers: int, limits: IndexLimits = LIMITS) -> SmallFleet:
    workers = [f"w{i}" for i in range(num_workers)]
    fleet = SmallFleet(*workers, trust=Trust.JOINED, limits=limits)
    for worker in workers:
        keep_busy(fleet, worker)
    fleet.index.check()
    return fleet


def test_a_few_ranks_have_all_of_every_bound() -> None:
    assert totals(busy_fleet(FULL)) == dict.fromkeys(
        ("observed", "predicted", "orphans"), FULL * ALL
    )


@pytest.mark.parametrize("num_workers", [FULL + 1, 3 * FULL, 10 * FULL])
def test_many_ranks_keep_together_what_a_few_would(num_workers: int) -> None:
    fleet = busy_fleet(num_workers)
    assert at_most_a_few_full(fleet)
    assert min(totals(fleet).values()) > FULL * ALL // 2
    small = busy_fleet(num_workers, limits(ALL * FULL // num_workers, full_ranks=num_workers))
    assert num_entries(fleet.index) == num_entries(small.index), "any table, known here or not"


def test_who_was_there_first_makes_room_for_who_comes() -> None:
    """Without a word from any of them: time alone."""
    fleet = busy_fleet(FULL)
    for i in range(9 * FULL):
        fleet.add(f"late{i}", trust=Trust.JOINED)
    fleet.wait(1.0)
    fleet.wait(1.0)
    assert max(totals(fleet).values()) <= FULL * 6
    for i in range(9 * FULL):
        keep_busy(fleet, f"late{i}")
    assert at_most_a_few_full(fleet)


def test_a_rank_has_all_of_it_again_when_others_have_gone() -> None:
    fleet = busy_fleet(10 * FULL)
    for i in range(FULL, 10 * FULL):
        fleet.index.remove_worker(rank(f"w{i}").worker)
    for i in range(FULL):
        keep_busy(fleet, f"w{i}", seed=1_000)
    assert totals(fleet)["predicted"] == FULL * ALL


def test_a_pool_is_a_holder_as_long_as_it_is_known() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS, limits=LIMITS)
    fleet.index.check()
    fleet.add(user("b", storage=None))
    fleet.index.check()
    fleet.index.remove_worker(rank("a").worker)
    fleet.index.check()
