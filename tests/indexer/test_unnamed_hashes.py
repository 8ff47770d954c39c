"""Stores without tokens: hashes that name blocks heard of elsewhere, or none so far."""

import pytest

from indexer.identity import ClaimSkip
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt

A = names(0, 6)
B = names(100, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet("w", "cold")


def test_a_store_without_tokens_names_a_block_announced_before(fleet: SmallFleet) -> None:
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.store("w", A[1:2], [], medium="CPU")
    fleet.remove("w", A[1:2])
    assert fleet.run("w", PROMPT) == (2, 1, 0)


def test_it_names_a_block_that_left_a_moment_ago(fleet: SmallFleet) -> None:
    """GPU events of a step are published before the offload events of the same step."""
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.remove("w", A[2:3])
    fleet.store("w", A[2:3], [], medium="CPU")
    assert fleet.run("w", PROMPT) == (2, 1, 0)


def test_a_store_without_tokens_of_an_unknown_hash_waits_for_a_name(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], [], medium="CPU")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    state = fleet.state("w")
    assert (state.unnamed, state.skips[ClaimSkip.UNRESOLVED]) == (1, 1)
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.remove("w", A[:1])
    assert fleet.run("w", PROMPT) == (0, 1, 0)
    fleet.remove("w", A[:1], "CPU")
    assert fleet.state("w").unknown_removals == {}


def test_unresolved_hashes_are_bounded(fleet: SmallFleet) -> None:
    fleet.store("w", names(10_000, 9_000), [], medium="CPU")
    state = fleet.state("w")
    assert (state.unnamed, state.skips[ClaimSkip.UNRESOLVED_FULL]) == (8_192, 808)
    fleet.remove("w", names(10_000, 9_000), "CPU")
    assert fleet.findings() == {}
    assert fleet.state("w").unnamed == 0


def test_offload_events_without_extra_keys_keep_the_identity_of_the_hash(fleet: SmallFleet) -> None:
    """vLLM's self-describing offload events carry tokens, but neither salt nor images."""
    salted = [["s"], None]
    fleet.store("w", A[:2], TOKENS[:8], extra_keys=salted)
    fleet.store("w", A[:2], TOKENS[:8], medium="CPU")
    fleet.store("w", B[:1], TOKENS[:4], medium="CPU")  # never heard of: could be anybody's
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (2, 0, 0)
    fleet.remove("w", A[:2])
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (0, 2, 0)
