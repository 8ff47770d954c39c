"""Stores, removals and clears of one rank, on every tier."""

import pytest

from indexer.identity import ClaimSkip
from protocol import BlockRemoved, BlockStored, KvEvent, Tier
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt

A = names(0, 6)
B = names(100, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet("w", "cold")


# Set operations


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_one_removal_undoes_any_number_of_stores(fleet: SmallFleet, repeats: int) -> None:
    for _ in range(repeats):
        fleet.store("w", A[:2], TOKENS[:8])
        fleet.store("w", A[:2], TOKENS[:8], medium="CPU")
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (0, 2, 0)
    state = fleet.state("w")
    assert state.duplicates.get(Tier.GPU, 0) == state.duplicates.get(Tier.HOST, 0)
    assert state.duplicates.get(Tier.GPU, 0) == 2 * (repeats - 1)


def test_a_removal_of_the_unknown_is_counted_by_tier(fleet: SmallFleet) -> None:
    fleet.remove("w", A[:2])
    fleet.remove("w", A[:1], "CPU_PINNED")
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.remove("w", A[:1])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {Tier.GPU: 2, Tier.HOST: 1}


def test_one_batch_may_remove_and_store_the_same_block(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4])
    store = BlockStored(A[:1], None, TOKENS[:4], 4, "GPU")
    fleet.apply("w", BlockRemoved(A[:1], "GPU"), store)
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    fleet.apply("w", store, BlockRemoved(A[:1], "GPU"))
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0


def test_eviction_from_gpu_leaves_the_host_copy(fleet: SmallFleet) -> None:
    fleet.store("w", A[:4], TOKENS[:16])
    fleet.store("w", A[:4], TOKENS[:16], medium="CPU_PINNED")
    fleet.remove("w", A[2:4])
    assert fleet.run("w", PROMPT) == (2, 2, 0)
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (0, 4, 0)
    fleet.remove("w", A[:4], "CPU_PINNED")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0


def test_a_tier_hole_is_bridged_by_any_tier_and_never_skipped(fleet: SmallFleet) -> None:
    fleet.store("w", A, TOKENS)
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0], medium="CPU")
    fleet.store("w", A[2:4], TOKENS[8:16], parent=A[1], medium="DISK")
    fleet.remove("w", A[1:4])
    assert fleet.run("w", PROMPT) == (3, 2, 1)
    fleet.remove("w", A[3:4], "DISK")
    assert fleet.run("w", PROMPT) == (1, 2, 0)


def test_a_mid_chain_block_stored_again_makes_its_descendants_count(fleet: SmallFleet) -> None:
    fleet.store("w", A, TOKENS)
    fleet.remove("w", A[2:3])
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.run("w", PROMPT) == (6, 0, 0)


def test_a_child_may_follow_a_parent_on_another_tier(fleet: SmallFleet) -> None:
    fleet.store("w", A[:2], TOKENS[:8], medium="CPU_PINNED")
    fleet.store("w", A[2:4], TOKENS[8:16], parent=A[1])
    assert fleet.run("w", PROMPT) == (2, 2, 0)


@pytest.mark.parametrize("order", ["store first", "remove first"])
def test_demotion_converges_in_either_order(fleet: SmallFleet, order: str) -> None:
    """SGLang's unified core stores on host and then removes from GPU; its predecessor the reverse."""
    fleet.store("w", A[:3], TOKENS[:12])
    events: list[KvEvent] = [
        BlockStored(A[:3], None, TOKENS[:12], 4, "CPU_PINNED"),
        BlockRemoved(A[:3], "GPU"),
    ]
    for event in events if order == "store first" else events[::-1]:
        fleet.apply("w", event)
    assert fleet.run("w", PROMPT) == (0, 3, 0)


def test_credit_is_for_the_longest_prefix_not_for_any_fragment(fleet: SmallFleet) -> None:
    second = TOKENS[12:]
    fleet.store("w", names(50, 3), second)
    fleet.store("cold", A[:3], TOKENS[:12])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.run("cold", PROMPT) == (3, 0, 0)


def test_removing_everything_leaves_nothing(fleet: SmallFleet) -> None:
    for worker in ("w", "cold"):
        fleet.store(worker, A, TOKENS)
        fleet.store(worker, B, blocks(900, 6), cache_salt="s")
    for worker in ("w", "cold"):
        fleet.remove(worker, [*A, *B])
    stats = fleet.index.stats()
    assert (stats.blocks, stats.key_spaces) == (0, 0)


# Media


@pytest.mark.parametrize(
    ("medium", "run"),
    [
        (None, (1, 0, 0)),
        ("GPU", (1, 0, 0)),
        ("gpu", (1, 0, 0)),
        ("CPU", (0, 1, 0)),
        ("cpu_pinned", (0, 1, 0)),
        ("CPU_TIER1", (0, 1, 0)),
        ("CPU_TIER2", (0, 1, 0)),
        ("DISK", (0, 0, 1)),
        ("EXTERNAL", (0, 0, 1)),
        ("FS", (0, 0, 1)),
        ("OBJ", (0, 0, 1)),
        ("STORAGE", (0, 0, 1)),
        ("ETHER", (0, 0, 0)),
    ],
)
def test_media(fleet: SmallFleet, medium: str | None, run: tuple[int, int, int]) -> None:
    fleet.store("w", A[:1], TOKENS[:4], medium=medium)
    assert fleet.run("w", PROMPT) == run
    unknown = fleet.state("w").skips.get(ClaimSkip.UNKNOWN_MEDIUM, 0)
    assert unknown == (sum(run) == 0)
    fleet.remove("w", A[:1], medium)
    assert fleet.run("w", PROMPT) == (0, 0, 0)


def test_a_removal_from_an_unknown_medium_removes_nothing(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.remove("w", A[:1], "ETHER")
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_remote_copies_are_not_the_workers_own(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4], medium="STORAGE", locality="REMOTE")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    fleet.store("w", A[:1], TOKENS[:4], medium="STORAGE", locality="LOCAL")
    fleet.apply("w", BlockRemoved(A[:1], "STORAGE", locality="REMOTE"))
    assert fleet.run("w", PROMPT) == (0, 0, 1)
    assert fleet.state("w").skips[ClaimSkip.REMOTE] == 2


@pytest.mark.parametrize(
    ("medium", "run"),
    [
        (None, (0, 0, 0)),
        ("GPU", (0, 2, 0)),
        ("CPU", (2, 0, 0)),
        ("DISK", (2, 0, 0)),
        ("ETHER", (2, 0, 0)),
    ],
)
def test_clears(fleet: SmallFleet, medium: str | None, run: tuple[int, int, int]) -> None:
    for tier in ("GPU", "CPU", "DISK"):
        fleet.store("w", A[:2], TOKENS[:8], medium=tier)
        fleet.store("cold", A[:2], TOKENS[:8], medium=tier)
    fleet.clear("w", medium)
    assert fleet.run("w", PROMPT) == run
    assert fleet.run("cold", PROMPT) == (2, 0, 0)


def test_a_clear_storm_changes_nothing_else(fleet: SmallFleet) -> None:
    for _ in range(50):
        fleet.clear("w")
    fleet.store("w", A[:2], TOKENS[:8])
    assert fleet.run("w", PROMPT) == (2, 0, 0)


def test_hashes_may_be_bytes(fleet: SmallFleet) -> None:
    hashes = [bytes([i]) * 32 for i in range(3)]
    fleet.store("w", hashes[:2], TOKENS[:8])
    fleet.store("w", hashes[2:], TOKENS[8:12], parent=hashes[1])
    fleet.remove("w", hashes[1:2])
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_two_hashes_of_one_block_hold_it_until_both_go(fleet: SmallFleet) -> None:
    """Namespaces that the events do not tell apart: different hashes, equal tokens."""
    for hashes in (A[:2], B[:2]):
        fleet.store("w", hashes, TOKENS[:8])
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    fleet.remove("w", B[:2])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0
