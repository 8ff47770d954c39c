"""Blocks held by evidence alone go with the node that an event removes, as far as its hashes say."""

import pytest

from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EngineHash
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt

LAST = names(0, 1)[0]
"""Engine hash of the last of eight blocks that were served: the only one that an event names."""
TOKENS = blocks(0, 8)
TAIL = blocks(9_000, 2)
NAMELESS = names(100, 20)
OTHER = names(500, 2)


def served() -> SmallFleet:
    """Eight blocks were cached before anybody listened; two more are stored after them."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.store("w", OTHER, blocks(70_000, 2))
    child = BlockStored(names(900, 2), LAST, TAIL, SIZE, "GPU")
    fleet.serve("w", prompt([*TOKENS, *TAIL, 1]), 8 * SIZE, [child])
    assert fleet.match("w", prompt(TOKENS)).observed_blocks == 8
    return fleet


@pytest.mark.parametrize(
    ("removed", "left"),
    [
        ([LAST], 7),
        ([*NAMELESS[:7], LAST], 0),
        ([*NAMELESS[:3], LAST], 4),  # the node begins in the middle of the prompt
        ([*NAMELESS, LAST], 0),  # after another node
        ([*NAMELESS[:5], OTHER[0], NAMELESS[6], LAST], 6),  # what is known is of another node
        ([LAST, *NAMELESS[:7]], 7),  # nodes behind it say nothing
        (NAMELESS[:8], 8),
        ([*NAMELESS[:3], LAST, LAST], 4),
    ],
)
def test_a_node_is_removed(removed: list[EngineHash], left: int) -> None:
    fleet = served()
    fleet.apply("w", BlockRemoved(removed, "GPU"))
    assert fleet.match("w", prompt(TOKENS)).gpu_blocks == left


def test_what_events_announced_stays() -> None:
    """They name it themselves when it goes."""
    fleet = served()
    fleet.store("w", names(200, 4), TOKENS[: 4 * SIZE])
    fleet.apply("w", BlockRemoved([*NAMELESS[:7], LAST], "GPU"))
    assert fleet.match("w", prompt(TOKENS)).gpu_blocks == 4


def test_other_tiers_say_nothing() -> None:
    fleet = served()
    fleet.apply("w", BlockRemoved([*NAMELESS[:7], LAST], "CPU"))
    assert fleet.match("w", prompt(TOKENS)).gpu_blocks == 8
