"""Silent refills of ranks that were heard from the middle on, block by block."""

import pytest

from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, KvEvent, SkipReason
from protocol.events import EventBatch
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank

HOST = "host_stores_unannounced"
A = names(0, 8)
TOKENS = blocks(0, 8)
REQUEST = prompt([*TOKENS, 1])

ON_GPU = BlockStored(A, None, TOKENS, SIZE, "GPU")
ON_HOST = BlockStored(A, None, TOKENS, SIZE, "CPU_PINNED")
OFF_GPU = BlockRemoved(A, "GPU")
OFF_HOST = BlockRemoved(A, "CPU_PINNED")


def joined() -> SmallFleet:
    return SmallFleet("w", trust=Trust.JOINED)


# Removals


@pytest.mark.parametrize(
    ("events", "is_found"),
    [
        # stored before we came: the first removal is nothing, nor is a copy from before after it
        ([OFF_HOST], False),
        ([OFF_HOST, OFF_HOST], False),
        ([OFF_HOST, OFF_HOST, OFF_HOST], True),
        ([ON_GPU, OFF_HOST], False),
        ([ON_GPU, ON_HOST, OFF_GPU, OFF_HOST], False),
        ([ON_GPU, ON_HOST, OFF_GPU, OFF_HOST, OFF_HOST], False),
        # gone, and back in silence, twice
        ([ON_GPU, ON_HOST, OFF_GPU, OFF_HOST, ON_GPU, OFF_GPU, OFF_HOST, ON_GPU, OFF_HOST], True),
        # announced each time
        ([ON_HOST, OFF_HOST] * 5, False),
        ([ON_HOST, OFF_HOST, ON_GPU, OFF_GPU] * 5, False),
        # second copies, seen or to be feared
        ([ON_HOST, ON_HOST, OFF_HOST, OFF_HOST, OFF_HOST, OFF_HOST], False),
        ([ON_GPU, ON_GPU, OFF_HOST, OFF_HOST, OFF_HOST, OFF_HOST], False),
    ],
)
def test_removals_from_host(events: list[KvEvent], *, is_found: bool) -> None:
    fleet = joined()
    for event in events:
        fleet.apply("w", event)
    assert (HOST in fleet.findings()) is is_found


@pytest.mark.parametrize("how", ["loss", "unreadable event"])
def test_whatever_may_have_been_missed_begins_it_anew(how: str) -> None:
    fleet = joined()
    for _ in range(4):
        fleet.apply("w", OFF_HOST)
        if how == "loss":
            fleet.index.record_loss(rank("w"), fleet.now)
        else:
            batch = EventBatch(0.0, [], skipped=[SkipReason.BAD_FIELD])
            fleet.index.apply(rank("w"), batch, fleet.now)
    assert HOST not in fleet.findings()


# Hits


def silent_refill(fleet: SmallFleet, *, cached: int = 8) -> None:
    """Its blocks come back from storage in silence and are loaded back, which is announced; then they go."""
    fleet.serve("w", REQUEST, SIZE * cached, [ON_GPU])
    fleet.wait(120.0)
    fleet.apply("w", OFF_GPU)
    fleet.now += 1.0


def test_hits_on_what_was_heard_to_go_are_found() -> None:
    fleet = joined()
    fleet.apply("w", ON_GPU, ON_HOST)
    fleet.now += 1.0
    fleet.apply("w", OFF_GPU, OFF_HOST)
    fleet.wait(120.0)
    for number in range(1, 4):
        silent_refill(fleet)
        assert (HOST in fleet.findings()) is (number == 3)
    evidence = fleet.findings()[HOST]
    assert (evidence["unexplained_hits"], evidence["unexplained_hit_blocks"]) == (3, 24)


@pytest.mark.parametrize(
    "before",
    [
        [],  # may have been there from the start
        [ON_GPU, OFF_GPU],  # may be on host from the start
        [ON_GPU, ON_HOST, OFF_GPU],  # is on host
        [ON_GPU, ON_GPU, ON_HOST, OFF_GPU, OFF_HOST],  # of one that keeps second copies
    ],
)
def test_hits_that_the_time_before_may_explain_are_not(before: list[KvEvent]) -> None:
    fleet = joined()
    for event in before:
        fleet.apply("w", event)
    fleet.wait(120.0)
    for _ in range(6):
        silent_refill(fleet)
    assert HOST not in fleet.findings()


def test_hits_after_a_loss_are_not_judged() -> None:
    fleet = joined()
    fleet.apply("w", ON_GPU, ON_HOST, OFF_GPU, OFF_HOST)
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.wait(120.0)
    for _ in range(6):
        silent_refill(fleet)
    assert HOST not in fleet.findings()
