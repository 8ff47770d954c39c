"""Claims that are dropped all at once: gone for every reader at that moment, swept away later."""

from collections.abc import Callable

import pytest

from indexer.actions import ForgetReason
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import AllBlocksCleared, Tier, WorkerId
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank

NUM = 3_000
TOKENS = blocks(0, NUM)
PROMPT = prompt(TOKENS)


def full_fleet(**limits: int) -> SmallFleet:
    fleet = SmallFleet("w", "other", limits=IndexLimits(**limits))
    for medium in ("GPU", "CPU"):
        fleet.store("w", names(0, NUM), TOKENS, medium=medium)
    fleet.store("other", names(0, 5), TOKENS[:20])
    fleet.index.predict(rank("w"), prompt(blocks(1_000_000, 50)), fleet.now)
    return fleet


def clear(fleet: SmallFleet) -> None:
    fleet.apply("w", AllBlocksCleared())


def forget(fleet: SmallFleet) -> None:
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)


def remove(fleet: SmallFleet) -> None:
    fleet.index.remove_worker(WorkerId("w"))
    fleet.add("w")


drops = pytest.mark.parametrize("drop", [clear, forget, remove])


@drops
def test_nothing_is_shown_from_that_moment_on(drop: Callable[[SmallFleet], None]) -> None:
    fleet = full_fleet()
    assert fleet.run("w", PROMPT) == (NUM, 0, 0)
    drop(fleet)
    fleet.index.check()
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.match("w", prompt(blocks(1_000_000, 50))).predicted_blocks == 0
    assert fleet.run("other", PROMPT) == (5, 0, 0)
    assert sum(fleet.state("w").blocks.values()) == 0
    assert fleet.state("w").predicted == 0
    assert fleet.index.stats().blocks == NUM + 50  # they wait to be swept
    while not fleet.index.sweep(700):
        fleet.index.check()
    fleet.index.check()
    assert fleet.index.stats().blocks == 5
    assert fleet.run("other", PROMPT) == (5, 0, 0)


@drops
def test_what_is_stored_meanwhile_stays(drop: Callable[[SmallFleet], None]) -> None:
    fleet = full_fleet()
    drop(fleet)
    fleet.store("w", names(0, 100), TOKENS[:400])
    assert fleet.run("w", PROMPT) == (100, 0, 0)
    while not fleet.index.sweep(500):
        assert fleet.run("w", PROMPT) == (100, 0, 0)
    fleet.index.check()
    assert fleet.run("w", PROMPT) == (100, 0, 0)
    assert fleet.index.stats().blocks == 100


def test_time_sweeps() -> None:
    fleet = full_fleet()
    clear(fleet)
    for _ in range(3):
        fleet.wait(0.25)
    assert fleet.index.stats().blocks == 5


def test_a_slot_is_used_again_when_it_is_swept() -> None:
    fleet = full_fleet()
    for _ in range(5):
        clear(fleet)
        while not fleet.index.sweep(10_000):
            pass
        fleet.store("w", names(0, NUM), TOKENS)
        assert fleet.run("w", PROMPT) == (NUM, 0, 0)
    fleet.index.check()
    assert len(fleet.index._blocks._free_slots) == 1


def test_a_storm_of_clears_leaves_one_slot_behind() -> None:
    fleet = full_fleet()
    for _ in range(50):
        clear(fleet)
    assert len(fleet.index._blocks.retired.listed()) == 1


def test_beyond_the_bound_clears_drop_one_by_one() -> None:
    fleet = full_fleet(retired=2 * NUM + 100)
    clear(fleet)
    fleet.store("w", names(0, NUM), TOKENS)
    clear(fleet)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert len(fleet.index._blocks.retired.listed()) == 1
    fleet.index.check()


def test_few_claims_are_dropped_one_by_one() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", names(0, 1_000), TOKENS[:4_000])
    clear(fleet)
    assert fleet.index.stats().blocks == 0


def test_children_of_what_was_cleared_may_come_a_moment_later() -> None:
    """The last hashes of each tier are remembered, in a retired slot or not."""
    fleet = full_fleet()
    clear(fleet)
    last = names(0, NUM)[-1]
    fleet.store("w", [b"child"], [1, 2, 3, 4], parent=last)
    assert fleet.state("w").orphans == 0
    assert fleet.state("w").blocks[Tier.GPU] == 1
    while not fleet.index.sweep(10_000):
        pass
    fleet.index.check()


@drops
def test_what_waits_or_has_no_name_goes_along(drop: Callable[[SmallFleet], None]) -> None:
    fleet = full_fleet()
    fleet.store("w", [b"orphan"], [1, 2, 3, 4], parent=b"unknown")
    fleet.store("w", [b"placeholder"], [], medium="CPU")
    fleet.store("w", names(0, 1), TOKENS[:4], cache_salt="s")  # one hash, two namespaces
    assert (fleet.state("w").orphans, fleet.state("w").unnamed) == (1, 2)
    drop(fleet)
    fleet.index.check()
    assert (fleet.state("w").orphans, fleet.state("w").unnamed) == (0, 0)
    fleet.store("w", [b"unknown"], [5, 6, 7, 8])
    fleet.store("w", [b"placeholder"], [9, 9, 9, 9])
    assert fleet.state("w").blocks == {Tier.GPU: 2, Tier.HOST: 0, Tier.STORAGE: 0}
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (0, 0, 0)
    while not fleet.index.sweep(10_000):
        pass
    fleet.index.check()
    assert fleet.index.stats().blocks == 7


def test_doubt_and_evidence_go_along() -> None:
    fleet = full_fleet()
    fleet.index.set_trust(rank("w"), Trust.JOINED, fleet.now)
    fleet.index.observe(rank("w"), prompt(blocks(2_000_000, 20)), fleet.now)
    fleet.index.record_loss(rank("w"), fleet.now)
    assert (fleet.state("w").doubtful, fleet.state("w").observed) == (2 * NUM, 20)
    clear(fleet)
    assert (fleet.state("w").doubtful, fleet.state("w").observed) == (0, 0)
    fleet.wait(700.0)
    fleet.store("w", names(0, 1), TOKENS[:4])
    assert fleet.run("w", PROMPT) == (1, 0, 0)


@drops
def test_shares_of_a_block_go_along(drop: Callable[[SmallFleet], None]) -> None:
    """Two groups held it: afterwards one store is undone by one removal."""
    fleet = full_fleet()
    for group in (0, 1):
        fleet.store("w", names(0, 1), TOKENS[:4], group_idx=group)
    drop(fleet)
    fleet.store("w", names(0, 1), TOKENS[:4], group_idx=0)
    fleet.remove("w", names(0, 1), group_idx=0)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
