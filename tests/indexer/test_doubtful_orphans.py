"""Blocks whose parent is unknown when batches are lost: what they become later is as old as they are."""

import pytest

from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank

A, TOKENS = names(0, 8), blocks(0, 8)
REQUEST = prompt([*TOKENS, 1])
ROOTS = BlockStored(A[:4], None, TOKENS[: 4 * SIZE], SIZE, "GPU")
CHILDREN = BlockStored(A[4:], A[3], TOKENS[4 * SIZE :], SIZE, "GPU")


def parked_before_a_loss() -> SmallFleet:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.apply("w", CHILDREN)
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    return fleet


def test_adopted_they_are_doubtful_and_go_when_their_time_is_over() -> None:
    fleet = parked_before_a_loss()
    fleet.wait(500.0)
    fleet.apply("w", ROOTS)
    assert (fleet.match("w", REQUEST).gpu_blocks, fleet.state("w").doubtful) == (8, 4)
    fleet.wait(99.0)
    assert fleet.match("w", REQUEST).gpu_blocks == 8
    fleet.wait(2.0)
    assert (fleet.match("w", REQUEST).gpu_blocks, fleet.trust("w")) == (4, Trust.JOINED)


def test_unnamed_they_go_at_the_same_time() -> None:
    fleet = parked_before_a_loss()
    assert fleet.state("w").unnamed == 4
    fleet.wait(601.0)
    assert fleet.state("w").unnamed == 0
    fleet.apply("w", ROOTS)
    assert fleet.match("w", REQUEST).gpu_blocks == 4


@pytest.mark.parametrize("is_adopted_first", [True, False])
def test_announced_again_they_are_true(is_adopted_first: bool) -> None:
    fleet = parked_before_a_loss()
    fleet.apply("w", *([ROOTS, CHILDREN] if is_adopted_first else [CHILDREN, ROOTS]))
    assert fleet.state("w").doubtful == 0
    fleet.wait(601.0)
    assert fleet.match("w", REQUEST).gpu_blocks == 8


def test_removed_and_stored_again_they_are_new() -> None:
    fleet = parked_before_a_loss()
    fleet.apply("w", BlockRemoved(A[4:], "GPU"), CHILDREN, ROOTS)
    fleet.wait(601.0)
    assert fleet.match("w", REQUEST).gpu_blocks == 8


def test_one_tier_is_confirmed_and_the_other_is_not() -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    on_host = BlockStored(CHILDREN.block_hashes, A[3], CHILDREN.token_ids, SIZE, "CPU")
    fleet.apply("w", CHILDREN, on_host)
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.apply("w", ROOTS, on_host)
    assert (fleet.run("w", REQUEST), fleet.state("w").doubtful) == ((8, 0, 0), 4)
    fleet.wait(601.0)
    assert fleet.run("w", REQUEST) == (4, 4, 0)


def test_of_two_losses_the_first_that_they_saw_counts() -> None:
    """Named late, none of them goes before a claim that has been doubtful for longer."""
    fleet = parked_before_a_loss()
    fleet.wait(100.0)
    fleet.store("w", names(50, 2), blocks(5_000, 2))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.apply("w", ROOTS)
    fleet.wait(599.0)
    assert fleet.state("w").doubtful == 6
    fleet.wait(2.0)
    assert fleet.state("w").doubtful == 0
    assert fleet.match("w", REQUEST).gpu_blocks == 4
