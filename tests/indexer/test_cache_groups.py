"""Cache groups of one rank: which of them make claims, and which one an event speaks of."""

import pytest

from indexer.identity import ClaimSkip
from protocol import BlockStored, Tier
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt

A = names(0, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet("w", "cold")


def group_events(order: int) -> list[BlockStored]:
    tokens = list(range(240))
    full = names(0, 5)
    events = [
        BlockStored([full[4]], None, tokens, 240, "GPU", group_idx=0, spec_kind="mamba"),
        BlockStored([full[4]], None, tokens, 240, "GPU", group_idx=1, spec_kind="mamba"),
        BlockStored(full[3:], None, tokens, 48, "GPU", group_idx=2, spec_kind="sliding_window"),
        BlockStored(full, None, tokens, 48, "GPU", group_idx=3, spec_kind="full_attention"),
    ]
    return events[::order]


@pytest.mark.parametrize("order", [1, -1])
def test_full_attention_groups_alone_make_claims(fleet: SmallFleet, order: int) -> None:
    fleet.apply("w", *group_events(order))
    request = prompt(range(240))
    assert fleet.run("w", request) == (5, 0, 0)
    for sparse in (0, 1, 2):
        fleet.remove("w", names(0, 5), group_idx=sparse)
        fleet.remove("w", names(0, 5), "CPU", group_idx=sparse)
    assert fleet.run("w", request) == (5, 0, 0)
    assert fleet.state("w").unknown_removals == {}
    assert fleet.findings().keys() == {"block_size_disagrees"}
    fleet.remove("w", names(0, 5)[:1], group_idx=3)
    assert fleet.run("w", request) == (0, 0, 0)


def test_two_full_groups_hold_a_block_until_both_drop_it(fleet: SmallFleet) -> None:
    for group in (0, 1):
        fleet.store("w", A[:2], TOKENS[:8], group_idx=group, spec_kind="full_attention")
    fleet.remove("w", A[:2], group_idx=0)
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    fleet.remove("w", A[:2], group_idx=1)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {}


def test_a_removal_without_a_group_speaks_of_all(fleet: SmallFleet) -> None:
    for group in (0, 1):
        fleet.store("w", A[:2], TOKENS[:8], group_idx=group)
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {}


def test_a_store_without_tokens_and_group_is_about_the_group_that_names_its_blocks(
    fleet: SmallFleet,
) -> None:
    """Offload events of vLLM up to 0.23: no tokens, no group, while those of the GPU name one."""
    for group, first in ((1, 3), (0, 0)):
        own = slice(first, first + 3)
        fleet.store("w", A[own], TOKENS[: SIZE * 3], group_idx=group, spec_kind="full_attention")
        fleet.store("w", A[own], [], medium="CPU")
        fleet.remove("w", A[own], group_idx=group)
        assert fleet.run("w", PROMPT) == (0, 3, 0)
    fleet.remove("w", A, "CPU")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {}
    assert fleet.state("w").skips.get(ClaimSkip.UNRESOLVED, 0) == 0


def test_one_that_nothing_names_yet_waits_in_a_group_that_may(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4], group_idx=0, spec_kind="full_attention")
    fleet.store("w", A[1:2], [], medium="CPU")
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0], group_idx=0)
    fleet.remove("w", A[1:2], group_idx=0)
    assert fleet.run("w", PROMPT) == (1, 1, 0)


def test_nor_is_it_kept_from_its_group_by_one_that_came_before_any(fleet: SmallFleet) -> None:
    fleet.store("w", A[5:], [], medium="CPU")
    fleet.store("w", A[:2], TOKENS[:8], group_idx=0, spec_kind="full_attention")
    fleet.store("w", A[:2], [], medium="CPU")
    fleet.remove("w", A[:2], group_idx=0)
    assert fleet.run("w", PROMPT) == (0, 2, 0)
    fleet.remove("w", [*A[:2], *A[5:]], "CPU")
    assert fleet.state("w").unknown_removals == {}


def test_beside_a_group_of_some_blocks_it_may_be_about_that_one(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:2], TOKENS[4:8], group_idx=1, spec_kind="sliding_window")
    fleet.store("w", A[:2], TOKENS[:8], group_idx=0, spec_kind="full_attention")
    fleet.store("w", A[:2], [], medium="CPU")
    fleet.remove("w", A[:2], group_idx=0)
    assert fleet.run("w", PROMPT) == (0, 0, 0)


def test_an_unknown_kind_of_group_is_not_credited(fleet: SmallFleet) -> None:
    fleet.store("w", A[:2], TOKENS[:8], group_idx=0, spec_kind="telepathy")
    fleet.store("w", A[:2], TOKENS[:8], group_idx=0)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").skips[ClaimSkip.UNKNOWN_GROUP_KIND] == 1


def test_the_number_of_groups_is_bounded(fleet: SmallFleet) -> None:
    for group in range(40):
        fleet.store("w", A[:1], TOKENS[:4], group_idx=group)
    assert fleet.state("w").blocks[Tier.GPU] == 16
    assert fleet.state("w").skips[ClaimSkip.TOO_MANY_GROUPS] == 24
