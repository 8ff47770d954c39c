"""Removals from HOST against the stores that were announced: which of them give a silent refill away."""

from typing import Any

import pytest

from indexer.actions import ForgetReason
from indexer.findings import FindingKind
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import (
    HARMLESS_SKIPS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineKind,
    EventBatch,
    KvEvent,
    SkipReason,
)
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, rank, worker_spec

HOST = "host_stores_unannounced"
A = names(0, 8)
TOKENS = blocks(0, 8)


def test_a_removal_from_host_of_a_block_never_stored_there() -> None:
    fleet = SmallFleet("w", "v")
    fleet.store("w", A[:2], TOKENS[:8])
    fleet.remove("w", A[:2], "CPU_PINNED")
    evidence = fleet.findings()[HOST]
    assert evidence["removed_host_blocks_never_stored"] == 2
    (finding,) = fleet.index.findings(fleet.now)
    assert (finding.kind, finding.ranks) == (FindingKind.HOST_STORES_UNANNOUNCED, (rank("w"),))
    assert "0.5.20" in finding.advice
    fleet.wait(500.0)
    assert HOST in fleet.findings()
    fleet.wait(200.0)
    assert fleet.findings() == {}


@pytest.mark.parametrize("trust", [trust for trust in Trust if trust is not Trust.EXACT])
def test_ranks_that_may_have_missed_the_store_prove_nothing(trust: Trust) -> None:
    fleet = SmallFleet("w", trust=trust)
    fleet.remove("w", A[:2], "CPU_PINNED")
    assert fleet.findings() == {}


def on_host(
    medium: str = "CPU_PINNED", first: int = 0, count: int = 2, **fields: Any
) -> BlockStored:
    tokens = blocks(first * SIZE, count)
    return BlockStored(names(first, count), None, tokens, SIZE, medium, **fields)


def off_host(first: int = 0, count: int = 2, **fields: Any) -> BlockRemoved:
    return BlockRemoved(names(first, count), "CPU_PINNED", **fields)


NO_TOKENS = BlockStored(A[:2], None, [], 0, "CPU")
CHILD = BlockStored(A[1:3], A[0], blocks(SIZE, 2), SIZE, "CPU_PINNED")
TWO_GROUPS = [
    BlockStored(A[:2], None, TOKENS[:8], SIZE, "GPU", group_idx=0, spec_kind="full_attention"),
    on_host(group_idx=0, spec_kind="full_attention"),
    on_host(group_idx=1, spec_kind="full_attention"),
]
SPARSE = [
    BlockStored(A[:2], None, TOKENS[:8], SIZE, "GPU", group_idx=0, spec_kind="full_attention"),
    on_host(group_idx=1, spec_kind="sliding_window", sliding_window=8),
]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # one removal a copy
        ([on_host(), off_host()], 0),
        ([on_host(), off_host(), off_host()], 2),
        ([on_host(), on_host(), off_host(), off_host()], 0),
        ([on_host(), on_host(), off_host(), off_host(), off_host()], 2),
        ([on_host(), on_host(), BlockRemoved([*A[:2], *A[:2]], "CPU_PINNED")], 0),
        ([on_host(), BlockRemoved([*A[:2], *A[:2]], "CPU_PINNED")], 2),
        ([on_host(), on_host(), off_host(), on_host(), off_host(), off_host()], 0),
        ([on_host("CPU"), on_host("CPU_TIER2"), off_host(), off_host()], 0),
        # stored, removed, refilled without a word, removed again
        ([on_host(), off_host(), on_host(), off_host(), off_host()], 2),
        # other tiers and unknown words speak of other copies
        ([on_host("GPU"), off_host()], 2),
        ([on_host("DISK"), off_host()], 2),
        ([on_host("TAPE"), off_host()], 2),
        ([on_host(), BlockRemoved(A[:2], "GPU"), off_host()], 0),
        ([on_host(), BlockRemoved(A[:2], "TAPE"), off_host()], 0),
        # what is credited nowhere is removed all the same
        ([CHILD, off_host(1), off_host(1)], 2),  # parked under an unknown parent
        ([CHILD, CHILD, off_host(1), off_host(1)], 0),
        ([CHILD, on_host("GPU", count=1), off_host(1), off_host(1)], 2),
        ([NO_TOKENS, off_host(), off_host()], 2),
        ([NO_TOKENS, NO_TOKENS, off_host(), off_host()], 0),
        ([on_host(), NO_TOKENS, off_host(), off_host()], 0),
        ([on_host(extra_keys=[["?", "?"], None]), off_host()], 0),  # of unknown identity
        ([BlockStored(A[:2], None, [1 << 40] * 8, SIZE, "CPU"), off_host()], 0),
        ([BlockStored(A[:2], None, [1, 2, 3], SIZE, "CPU"), off_host(), off_host()], 2),
        ([BlockStored(A[:2], A[0], TOKENS[:8], SIZE, "CPU"), off_host()], 0),  # its own parent
        ([on_host(locality="REMOTE"), off_host()], 0),
        ([on_host(), on_host(locality="REMOTE"), off_host(locality="REMOTE"), off_host()], 0),
        # groups
        ([*TWO_GROUPS, off_host(group_idx=0), off_host(group_idx=1)], 0),
        ([*TWO_GROUPS, off_host(), off_host()], 0),
        ([*TWO_GROUPS, off_host(), off_host(), off_host()], 2),
        ([*TWO_GROUPS, off_host(group_idx=0), off_host(group_idx=0)], 0),  # group 1 may be meant
        ([*SPARSE, off_host(group_idx=1), off_host()], 2),
        ([*SPARSE, off_host(), off_host()], 2),
        ([on_host(spec_kind="full_attention", group_idx=0), off_host(group_idx=7)], 0),
        # clears
        ([on_host(), AllBlocksCleared(), off_host()], 0),
        ([on_host(), on_host(), AllBlocksCleared(), off_host(), off_host(), off_host()], 2),
        ([on_host(), AllBlocksCleared("CPU"), off_host(), off_host()], 2),
        ([on_host(), AllBlocksCleared("GPU"), off_host(), off_host()], 2),
        ([AllBlocksCleared(), off_host()], 2),
    ],
)
def test_stores_account_for_removals(events: list[KvEvent], expected: int) -> None:
    """Together in one batch, and each in its own."""
    for batches in ([events], [[event] for event in events]):
        fleet = SmallFleet("w")
        for batch in batches:
            fleet.apply("w", *batch)
        found = fleet.findings().get(HOST, {"removed_host_blocks_never_stored": 0})
        assert found["removed_host_blocks_never_stored"] == expected


def test_a_clear_of_sglang_takes_host_along() -> None:
    fleet = SmallFleet(worker_spec("w", engine=EngineKind.SGLANG))
    fleet.apply("w", on_host(), on_host(), AllBlocksCleared(), on_host(), on_host())
    for expected in (False, False, True):
        fleet.apply("w", off_host())
        assert (HOST in fleet.findings()) is expected


def test_what_a_clear_dropped_may_still_be_removed() -> None:
    """vLLM announces a clear of everything and keeps what it offloaded."""
    fleet = SmallFleet("w")
    many = names(0, 6_000)
    fleet.store("w", many, blocks(0, 6_000), medium="CPU")
    fleet.clear("w")
    fleet.remove("w", many, "CPU")
    assert fleet.findings() == {}
    fleet.remove("w", many[:1], "CPU")
    assert HOST in fleet.findings()


def test_beyond_the_bound_of_second_copies_nothing_is_known_until_a_new_start() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(host_copies=3))
    fleet.apply("w", *[on_host(first=i, count=1) for i in range(4) for _ in range(2)])
    fleet.remove("w", names(50, 1), "CPU")
    assert HOST not in fleet.findings()
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    fleet.apply("w", *[on_host(first=i, count=1) for i in range(3) for _ in range(2)])
    fleet.remove("w", names(50, 1), "CPU")
    assert HOST in fleet.findings()


def test_unresolved_stores_beyond_their_bound_leave_nothing_known() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(unresolved=1))
    fleet.apply("w", NO_TOKENS, off_host())
    assert HOST not in fleet.findings()


@pytest.mark.parametrize("reason", SkipReason)
def test_an_event_that_cannot_be_read_may_have_been_the_store(reason: SkipReason) -> None:
    fleet = SmallFleet("w")
    fleet.index.apply(rank("w"), EventBatch(0.0, [off_host()], skipped=[reason]), fleet.now)
    assert (HOST in fleet.findings()) is (reason in HARMLESS_SKIPS)


def test_after_a_loss_nothing_is_known_until_the_engine_starts_anew() -> None:
    fleet = SmallFleet("w")
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.remove("w", A[:2], "CPU")
    fleet.clear("w")
    fleet.remove("w", A[:2], "CPU")
    assert HOST not in fleet.findings()
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    fleet.remove("w", A[:2], "CPU")
    assert HOST in fleet.findings()


def test_after_a_loss_sglang_is_known_from_its_next_clear_on() -> None:
    fleet = SmallFleet(worker_spec("w", engine=EngineKind.SGLANG))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.apply("w", off_host(), AllBlocksCleared())
    assert HOST not in fleet.findings()
    fleet.apply("w", off_host())
    assert HOST in fleet.findings()
