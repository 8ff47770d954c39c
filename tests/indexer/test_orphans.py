"""Blocks whose parent is unknown: how long they wait, and who may name their parent."""

import pytest

from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import BlockStored, Tier
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank

A = names(0, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.mark.parametrize("medium", [None, "GPU"])
def test_nothing_waits_any_more_when_the_last_tier_is_cleared(medium: str | None) -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0])
    fleet.clear("w", medium)
    assert (fleet.state("w").orphans, fleet.state("w").unnamed) == (0, 0)
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.store("w", A[1:2], [])  # names what it may be remembered as
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_what_another_tier_holds_goes_on_waiting() -> None:
    fleet = SmallFleet("w")
    for medium in ("GPU", "CPU"):
        fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0], medium=medium)
    fleet.clear("w", "GPU")
    assert fleet.state("w").orphans == 2
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (1, 2, 0)
    fleet.clear("w", "CPU")
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_orphans_of_a_group_wait_for_a_parent_of_their_own_group() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0], group_idx=0)
    fleet.store("w", A[:1], TOKENS[:4], group_idx=1)
    assert fleet.state("w").orphans == 1
    fleet.store("w", A[:1], TOKENS[:4], group_idx=0)
    assert fleet.run("w", PROMPT) == (2, 0, 0)


def test_a_link_outlives_what_it_names_and_names_nothing_then() -> None:
    """A served prompt told which block comes before; by now nobody holds any of its namespace."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.serve("w", prompt(TOKENS[:12]))
    fleet.wait(601.0)
    fleet.wait(601.0)
    assert fleet.index.stats().key_spaces == 0
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    state = fleet.state("w")
    assert (state.orphans, state.blocks[Tier.GPU]) == (1, 0)
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (2, 0, 0)


@pytest.mark.parametrize("order", ["events first", "request first"])
def test_orphans_are_adopted_when_their_parent_is_observed(order: str) -> None:
    """And what waits under them, on every tier that holds it."""
    fleet = SmallFleet("w", trust=Trust.JOINED)

    def publish() -> None:
        fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
        fleet.store("w", A[3:5], TOKENS[12:20], parent=A[2], medium="CPU")

    if order == "events first":
        publish()
        assert fleet.run("w", PROMPT) == (0, 0, 0)
        fleet.serve("w", prompt(TOKENS[:12]))
    else:
        fleet.serve("w", prompt(TOKENS[:12]))
        publish()
    match = fleet.match("w", PROMPT)
    assert (match.gpu_blocks, match.host_pinned_blocks, match.observed_blocks) == (3, 2, 2)
    assert fleet.state("w").orphans == 0


def test_a_cycle_closed_by_the_parent_of_many() -> None:
    fleet = SmallFleet("w")
    events = [
        BlockStored(A[i : i + 1], A[i + 1], TOKENS[4 * i : 4 * i + 4], 4, "GPU") for i in range(5)
    ]
    fleet.apply("w", *events)
    fleet.store("w", A[5:6], TOKENS[20:24], parent=A[0])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    fleet.remove("w", A)
    assert fleet.state("w").unknown_removals == {}
    assert fleet.index.stats().held == 0


def test_all_that_may_wait_is_adopted_at_once() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(orphans=1_000))
    long = blocks(0, 1_001)
    hashes = names(0, 1_001)
    for i in range(1_000, 0, -1):
        fleet.store("w", hashes[i : i + 1], long[4 * i : 4 * i + 4], parent=hashes[i - 1])
        if i == 990:
            break
    fleet.store("w", hashes[1:990], long[4:3960], parent=hashes[0])
    assert fleet.state("w").orphans == 1_000
    fleet.store("w", hashes[:1], long[:4])
    assert fleet.run("w", prompt(long)) == (1_001, 0, 0)


def test_a_child_of_a_block_that_has_just_left_is_no_orphan() -> None:
    """Engines publish a batch of what happened: the parent may be gone again when its child is heard of."""
    fleet = SmallFleet("w")
    fleet.store("w", A[:2], TOKENS[:8])
    fleet.remove("w", A[1:2])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.state("w").orphans == 0
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    assert fleet.run("w", PROMPT) == (3, 0, 0)


def test_a_name_that_evidence_gave_wrongly_does_not_outlive_a_clear() -> None:
    """Two prompts go on alike behind different beginnings; only one of them was seen."""
    fleet = SmallFleet("w", "another", trust=Trust.JOINED)
    fleet.store("another", A[5:], TOKENS[20:])  # keeps the key space
    other = [90, 91, 92, 93]
    fleet.serve("w", prompt(other + TOKENS[4:12]))
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    assert fleet.run("w", prompt(other + TOKENS[4:12]))[0] == 3, "taken for the one that was seen"
    fleet.clear("w")
    fleet.index.set_trust(rank("w"), Trust.EXACT, fleet.now)
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    assert fleet.run("w", prompt(other + TOKENS[4:12])) == (0, 0, 0)
