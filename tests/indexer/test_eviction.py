"""The bound of all claims: the oldest go first, are counted, and take nothing else along."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.identity import ClaimSkip
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EventBatch, Tier
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank, worker_spec

TOKENS = blocks(0, 40)


def bounded(claims: int, *workers: str, **limits: Any) -> SmallFleet:
    return SmallFleet(*workers or ("w",), limits=IndexLimits(claims=claims, age_grain=1, **limits))


def evicted(fleet: SmallFleet, worker: str = "w") -> int:
    return fleet.state(worker).skips.get(ClaimSkip.EVICTED, 0)


def test_the_oldest_go_first() -> None:
    fleet = bounded(10)
    for first in range(0, 40, 2):
        fleet.store("w", names(first, 2), TOKENS[:8], cache_salt=str(first))
    assert set(fleet.index.residency(rank("w"))[Tier.GPU]) == set(names(30, 10))
    assert evicted(fleet) == 30
    stats = fleet.index.stats()
    assert (stats.held, stats.max_held, stats.blocks, stats.key_spaces) == (10, 10, 10, 5)
    assert stats.skips[ClaimSkip.EVICTED] == 30


def test_the_oldest_of_all_ranks_and_tiers_go_first() -> None:
    fleet = bounded(12, "a", "b", "c")
    fleet.store("a", names(0, 4), TOKENS[:16])
    fleet.store("b", names(0, 4), TOKENS[:16], medium="CPU")
    fleet.store("c", names(0, 4), TOKENS[:16])
    fleet.store("a", names(4, 4), TOKENS[16:32], parent=names(3, 1)[0])
    assert [evicted(fleet, worker) for worker in "abc"] == [4, 0, 0]
    fleet.store("b", names(0, 3), TOKENS[:12])
    assert [evicted(fleet, worker) for worker in "abc"] == [4, 3, 0]
    assert fleet.run("b", prompt(TOKENS)) == (3, 1, 0)
    assert fleet.run("c", prompt(TOKENS)) == (4, 0, 0)


def test_what_is_stored_again_after_a_removal_is_young() -> None:
    fleet = bounded(4)
    fleet.store("w", names(0, 4), TOKENS[:16])
    fleet.remove("w", names(0, 1))
    fleet.store("w", names(0, 1), TOKENS[:4])
    fleet.store("w", names(20, 1), TOKENS[20:24])
    assert set(fleet.index.residency(rank("w"))[Tier.GPU]) == {
        *names(0, 1),
        *names(2, 2),
        *names(20, 1),
    }


def test_claims_that_were_evicted_are_no_gap_in_the_stream() -> None:
    """The rank is known in part from there on, and later removals of what is gone are no riddle."""
    fleet = bounded(4)
    fleet.store("w", names(0, 4), TOKENS[:16], medium="CPU")
    assert fleet.trust("w") is Trust.EXACT
    fleet.store("w", names(4, 4), TOKENS[16:32], parent=names(3, 1)[0], medium="CPU")
    assert fleet.trust("w") is Trust.JOINED
    fleet.remove("w", names(0, 4), "CPU")
    assert fleet.findings() == {}
    fleet.clear("w")
    assert fleet.trust("w") is Trust.EXACT


@pytest.mark.parametrize("kind", ["orphans", "unresolved", "unkeyable", "placeholders"])
def test_hashes_that_name_no_block_count_as_well(kind: str) -> None:
    fleet = bounded(100)
    for i in range(60):
        hashes = names(1_000 * i, 7)
        tokens = [] if kind in ("unresolved", "placeholders") else blocks(0, 7)
        parent = None if kind == "unkeyable" else f"p{i}".encode()
        keys = [[object.__name__, 7.5]] * 7 if kind == "unkeyable" else None
        medium = "CPU" if kind == "placeholders" else "GPU"
        fleet.store("w", hashes, tokens, parent, medium, extra_keys=keys)
    assert fleet.index.stats().held <= 100
    assert fleet.state("w").unnamed <= 100
    assert evicted(fleet) >= 320


def test_a_full_index_keeps_some_room_when_it_is_large() -> None:
    fleet = bounded(6_400)
    fleet.store("w", names(0, 6_401), blocks(0, 6_401))
    assert fleet.index.stats().held == 6_300


def test_parked_tokens_are_bounded_in_bytes() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(orphan_bytes=500))
    for i in range(10):
        fleet.store("w", names(10 * i, 5), blocks(0, 5), parent=f"p{i}".encode())
    assert fleet.state("w").orphans == 30
    assert fleet.state("w").skips[ClaimSkip.ORPHAN_DROPPED] == 20


names_of = st.integers(0, 30)
events = st.one_of(
    st.builds(
        lambda i, medium: BlockStored([i + 1], i or None, [i] * 4, 4, medium),
        names_of, st.sampled_from(["GPU", "CPU"]),
    ),
    st.builds(lambda i, medium: BlockRemoved([i + 1], medium), names_of, st.sampled_from(["GPU", "CPU"])),
)  # fmt: skip


@given(st.lists(events, max_size=60), st.integers(0, 12))
def test_the_bound_holds_whatever_comes(
    changes: list[BlockStored | BlockRemoved], claims: int
) -> None:
    """Against the plainest truth: an ordered dictionary of (tier, hash)."""
    fleet = bounded(claims)
    truth: dict[tuple[str, int | bytes], None] = {}
    for event in changes:
        fleet.index.apply(rank("w"), EventBatch(0.0, [event]), fleet.now)
        fleet.index.check()
        key = (event.medium or "", event.block_hashes[0])
        if isinstance(event, BlockStored):
            truth.setdefault(key)
        else:
            truth.pop(key, None)
        while len(truth) > claims:
            del truth[next(iter(truth))]
        assert fleet.index.stats().held == len(truth)


def test_a_departed_rank_leaves_room() -> None:
    fleet = bounded(8, "a", "b")
    fleet.store("a", names(0, 8), TOKENS[:32])
    fleet.index.remove_worker(rank("a").worker)
    fleet.add(worker_spec("a"))
    fleet.store("b", names(0, 8), TOKENS[:32])
    assert (evicted(fleet, "a"), evicted(fleet, "b")) == (0, 0)
