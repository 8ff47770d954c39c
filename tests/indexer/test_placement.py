"""Which block sizes of a rank are placed, and where the rank is looked up."""

from indexer.identity import ClaimSkip
from protocol import BlockRemoved, BlockStored
from tests.indexer.small_fleet import SmallFleet, names, prompt, worker_spec

NUM_SIZES = 12


def test_the_first_eight_block_sizes_of_a_rank_are_placed() -> None:
    fleet = SmallFleet(worker_spec("w", block_size=None))
    for size in range(1, NUM_SIZES + 1):
        hashes = names(10 * size, 2)
        fleet.apply("w", BlockStored(hashes, None, list(range(2 * size)), size, "GPU"))
    stats = fleet.index.stats()
    assert stats.key_spaces == 8
    assert stats.skips[ClaimSkip.TOO_MANY_GEOMETRIES] == 2 * (NUM_SIZES - 8)
    fleet.apply("w", BlockStored(names(500, 5), None, list(range(900, 940)), 8, "GPU"))
    assert fleet.match("w", prompt(range(900, 941))).matched_tokens == 40
    fleet.apply("w", *(BlockRemoved(names(10 * size, 2)) for size in range(1, NUM_SIZES + 1)))
    assert fleet.index.stats().key_spaces == 1


def test_a_rank_is_looked_up_by_the_size_that_most_of_its_events_use() -> None:
    fleet = SmallFleet("w")
    for first, size in ((0, 4), (100, 8), (200, 8), (300, 4), (400, 4)):
        fleet.store("w", names(first, 2), range(first, first + 2 * size))
    assert fleet.state("w").block_size == 4
    fleet.store("w", names(500, 9), range(500, 572))
    assert fleet.state("w").block_size == 8
    assert fleet.match("w", prompt(range(500, 573))).matched_tokens == 72
