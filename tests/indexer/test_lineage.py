"""Which blocks a store speaks of: parents that come late or never, and whose namespace it is."""

from typing import Any

import pytest

from indexer.identity import ClaimSkip
from protocol import BlockStored, Tier
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt

A = names(0, 6)
B = names(100, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet("w", "cold")


# Orphans


def test_orphans_wait_for_their_parent_and_never_start_a_prompt(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.state("w").orphans == 2
    for tokens in (TOKENS[:12], TOKENS[4:8], TOKENS[4:12]):
        assert fleet.run("w", prompt(tokens)) == (0, 0, 0)
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (3, 0, 0)
    assert fleet.run("w", prompt(TOKENS[4:12])) == (0, 0, 0)
    assert fleet.state("w").orphans == 0


def test_orphans_are_adopted_by_a_parent_on_another_tier(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0])
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0], medium="CPU")
    fleet.store("w", A[:1], TOKENS[:4], medium="CPU")
    assert fleet.run("w", PROMPT) == (2, 1, 0)
    fleet.remove("w", A[1:3])
    assert fleet.run("w", PROMPT) == (0, 3, 0)


def test_orphans_removed_before_their_parent_comes_do_not_count(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    fleet.remove("w", A[1:2])
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    assert fleet.run("w", PROMPT) == (3, 0, 0)


def test_children_before_parents_in_one_batch(fleet: SmallFleet) -> None:
    """vLLM's offload connector publishes a chain in any order."""
    order = [3, 1, 5, 0, 4, 2]
    events = [
        BlockStored(A[i : i + 1], A[i - 1] if i else None, TOKENS[4 * i : 4 * i + 4], 4, "CPU")
        for i in order
    ]
    fleet.apply("w", *events)
    assert fleet.run("w", PROMPT) == (0, 6, 0)
    assert fleet.state("w").orphans == 0


def test_parked_blocks_are_bounded_and_the_oldest_go() -> None:
    fleet = SmallFleet("w")
    limit = 8_192
    per_event = 512
    for i in range(limit // per_event + 2):
        first = 1_000_000 + i * per_event
        fleet.store("w", names(first, per_event), blocks(0, per_event), parent=f"p{i}".encode())
    state = fleet.state("w")
    assert state.orphans == limit
    assert state.skips[ClaimSkip.ORPHAN_DROPPED] == 2 * per_event
    fleet.store("w", [b"p0"], TOKENS[:4])
    fleet.store("w", [b"p17"], TOKENS[:4])
    assert fleet.state("w").orphans == limit - per_event


@pytest.mark.parametrize("medium", ["GPU", "CPU"])
def test_a_block_is_not_its_own_parent(fleet: SmallFleet, medium: str) -> None:
    fleet.store("w", A[:1], TOKENS[:4], parent=A[0], medium=medium)
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[2], medium=medium)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").skips[ClaimSkip.SELF_PARENT] == 3
    fleet.remove("w", A[:3], medium)
    assert fleet.state("w").unknown_removals == {}


def test_a_cycle_of_parents_is_rejected(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4], parent=A[2])
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.state("w").skips[ClaimSkip.PARENT_CYCLE] == 1
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").orphans == 2


# Identity


def test_namespaces_never_share_credit(fleet: SmallFleet) -> None:
    spaces: list[dict[str, Any]] = [
        {},
        {"cache_salt": "s"},
        {"lora_name": "ad"},
        {"lora_name": "ad", "cache_salt": "s"},
        {"lora_id": 3},
    ]
    for i, fields in enumerate(spaces):
        fleet.store("w", names(10 * i, i + 1), blocks(0, i + 1), **fields)
    for adapter, salt, expected in [
        (None, None, 1), (None, "s", 2), ("ad", None, 3), ("ad", "s", 4), (None, "t", 0), ("3", None, 0)
    ]:  # fmt: skip
        assert fleet.run("w", prompt(TOKENS, adapter=adapter, salt=salt))[0] == expected


def test_later_blocks_inherit_the_namespace_of_their_parent(fleet: SmallFleet) -> None:
    """vLLM names the salt in a prompt's first block alone."""
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1], extra_keys=[None])
    fleet.store("w", A[:1], TOKENS[:4], extra_keys=[["s"]])
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0], extra_keys=[None])
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (3, 0, 0)
    assert fleet.run("w", PROMPT) == (0, 0, 0)


def test_an_image_changes_credit_from_its_first_block_on(fleet: SmallFleet) -> None:
    """Placeholders have equal tokens. Without the image's identity the credit stops before it."""
    for name, hashes in (("cat", A[1:3]), ("dog", B[1:3])):
        fleet.store("w", A[:1], TOKENS[:4], extra_keys=[None])
        keys = [[[name, 0]], [[name, -2]]]
        fleet.store("w", hashes, TOKENS[4:12], parent=A[0], extra_keys=keys)
    fleet.store("w", A[3:4], TOKENS[12:16], parent=A[2], extra_keys=[None])
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    assert fleet.state("w").blocks[Tier.GPU] == 6


def test_what_follows_an_unidentified_block_is_not_credited(fleet: SmallFleet) -> None:
    fleet.store("w", A[:3], TOKENS[:12], extra_keys=[None, [{"new": 1}], None])
    fleet.store("w", A[3:4], TOKENS[12:16], parent=A[2])
    fleet.store("w", B[1:2], TOKENS[4:8], parent=A[0], extra_keys=[None])
    assert fleet.run("w", PROMPT) == (
        2,
        0,
        0,
    )  # the plain second block, not what hangs on the other
    state = fleet.state("w")
    assert (state.unnamed, state.orphans) == (3, 0)
    assert state.skips[ClaimSkip.AFTER_UNIDENTIFIED] == 1
    fleet.remove("w", A[:4])
    assert fleet.state("w").unnamed == 0


def test_a_block_of_another_size_than_its_parent_is_not_credited(fleet: SmallFleet) -> None:
    fleet.store("w", A[:2], TOKENS[:8])
    fleet.store("w", A[2:3], TOKENS[8:10], parent=A[1])
    assert fleet.state("w").skips[ClaimSkip.BLOCK_SIZE_MIXED] == 1
    assert fleet.run("w", PROMPT) == (2, 0, 0)


def test_pairs_are_another_key_space(fleet: SmallFleet) -> None:
    """Block size 4: the pair block of 1..4 needs the fifth token."""
    fleet.store("w", A[:1], [1, 2, 3, 4, 5], block_size=4, is_eagle=True)
    fleet.store("cold", A[:1], [1, 2, 3, 4])
    assert [fleet.run(w, prompt([1, 2, 3, 4, 5])) for w in ("w", "cold")] == [(1, 0, 0)] * 2
    assert [fleet.run(w, prompt([1, 2, 3, 4])) for w in ("w", "cold")] == [(0, 0, 0), (1, 0, 0)]
