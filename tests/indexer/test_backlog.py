"""Long batches told in parts: the same claims, in order, a bounded number of blocks at a time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import Backlog, ForgetReason, Trust
from indexer.actions import LossCause
from indexer.backlog import parts
from protocol import (
    AllBlocksCleared,
    BatchScan,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    Rank,
    SkipReason,
    Tier,
    WorkerId,
    decode_batch,
    encode_batch,
)
from tests.indexer.set_sink import SetSink
from tests.indexer.small_fleet import SmallFleet, rank

W, OTHER = Rank(WorkerId("w")), Rank(WorkerId("w"), 1)
SIZE = 2

chains = st.integers(0, 3)
media = st.sampled_from(["GPU", "CPU", "DISK"])


def hashes_of(chain: int, first: int, count: int) -> list[int | bytes]:
    return [1000 * chain + 1 + i for i in range(first, first + count)]


@st.composite
def stores(draw: st.DrawFn) -> BlockStored:
    chain, first, count = draw(chains), draw(st.integers(0, 6)), draw(st.integers(1, 9))
    tokens = [100 * chain + t for t in range(SIZE * first, SIZE * (first + count))]
    of_first = None if first else ["salt"]  # a hash stands for one namespace
    keys = draw(st.sampled_from([None, [of_first, *[None] * (count - 1)]]))
    event = BlockStored(
        hashes_of(chain, first, count),
        hashes_of(chain, first - 1, 1)[0] if first else None,
        tokens if draw(st.booleans()) else [],
        SIZE,
        draw(media),
        extra_keys=keys if chain == 3 else None,
    )
    # a hash stands for the same tokens whenever it comes with any, or for none that can be told
    return replace(event, token_ids=event.token_ids[1:]) if chain == 2 else event


removals = st.builds(
    lambda chain, first, count, medium: BlockRemoved(hashes_of(chain, first, count), medium),
    chains, st.integers(0, 6), st.integers(1, 9), media,
)  # fmt: skip
clears = st.builds(AllBlocksCleared, st.sampled_from([None, "GPU", "CPU"]))
events = st.lists(st.one_of(stores(), stores(), removals, clears), max_size=12)


def work_off(backlog: Backlog, now: float = 1.0) -> int:
    for steps in range(10_000):
        if not backlog.is_behind(W.worker):
            return steps
        backlog.check()
        backlog.work(W.worker, now)
    raise AssertionError("the backlog does not end")


@given(st.lists(events, max_size=4), st.integers(1, 4))
def test_parts_make_the_same_claims(batches: Sequence[list[KvEvent]], max_blocks: int) -> None:
    """Also of what waits for its parent: at last every chain's first block is stored."""
    whole, cut = SmallFleet("w"), SmallFleet("w")
    backlog = Backlog(cut.index, max_blocks)
    roots: list[KvEvent] = [
        BlockStored(hashes_of(c, 0, 1), None, [100 * c, 100 * c + 1], SIZE, "GPU") for c in range(2)
    ]
    for seq, batch in enumerate([*batches, roots]):
        whole.index.apply(W, EventBatch(0.0, batch), 1.0)
        backlog.apply(W, EventBatch(0.0, batch), 1.0, seq)
    work_off(backlog)
    cut.index.check()
    for tier in Tier:
        held = whole.index.residency(W)[tier]
        assert sorted(map(str, cut.index.residency(W)[tier])) == sorted(map(str, held))
    assert cut.index.stats().claims == whole.index.stats().claims


@given(events, st.integers(1, 4))
def test_parts_are_bounded(batch: list[KvEvent], max_blocks: int) -> None:
    told = list(parts(EventBatch(3.0, batch, 1, [SkipReason.BAD_FIELD]), max_blocks))
    assert [len(part.skipped) for part in told] == [1, *[0] * (len(told) - 1)]
    for part in told:
        assert (part.ts, part.dp_rank) == (3.0, 1)
        sizes = [0 if isinstance(e, AllBlocksCleared) else len(e.block_hashes) for e in part.events]
        assert sum(sizes) <= max_blocks or len(sizes) == 1  # a store that cannot be cut
        assert len(sizes) <= max_blocks or max_blocks == 1


def test_events_of_a_long_payload_are_decoded_as_they_are_told() -> None:
    """However few they are: to count their blocks would be to decode them all in one go."""
    stores = [BlockStored([i], None, [i], 1, "GPU") for i in range(4)]
    scan = BatchScan(encode_batch(EventBatch(1.0, stores)))
    while not scan.proceed(1):
        pass
    assert scan.batch is not None
    sink = SetSink()
    backlog = Backlog(sink, max_blocks=8)
    backlog.apply(W, scan.batch, 1.0, 0)
    assert (backlog.is_behind(W.worker), sink.claims[W]) == (True, set())
    assert work_off(backlog) == 1
    assert sink.claims[W] == {0, 1, 2, 3}


def test_pairs_of_a_long_store_overlap() -> None:
    store = BlockStored([1, 2, 3], None, [1, 2, 3, 4, 5, 6, 7], 2, "GPU", is_eagle=True)
    told = [e for part in parts(EventBatch(0.0, [store]), 1) for e in part.events]
    assert [e.token_ids for e in told if isinstance(e, BlockStored)] == [
        [1, 2, 3], [3, 4, 5], [5, 6, 7],
    ]  # fmt: skip
    assert [e.parent_hash for e in told if isinstance(e, BlockStored)] == [None, 1, 2]


def stored(*blocks: int) -> EventBatch:
    return EventBatch(0.0, [BlockStored([b], None, [b], 1, "GPU") for b in blocks])


def test_what_follows_waits_and_other_ranks_do_not() -> None:
    sink = SetSink()
    backlog = Backlog(sink, 2)
    backlog.apply(W, stored(*range(5)), 0.0, 0)
    backlog.set_trust(W, Trust.EXACT, 0.0)
    backlog.record_loss(W, 0.0, LossCause.NO_REPLAY)
    backlog.apply(W, stored(9), 0.0, 1)
    backlog.apply(Rank(WorkerId("x")), stored(7), 0.0, 0)
    assert sink.calls == ["apply"]
    backlog.work(WorkerId("x"), 0.0)
    work_off(backlog)
    assert sink.calls[1:] == ["apply"] * 3 + ["set_trust", "record_loss", "apply"]
    assert sink.claims[W] == {0, 1, 2, 3, 4, 9}


def test_forgetting_drops_what_waits_of_that_rank_alone() -> None:
    sink = SetSink()
    backlog = Backlog(sink, 2)
    backlog.apply(W, stored(*range(5)), 0.0)
    backlog.apply(OTHER, stored(*range(5)), 0.0)
    backlog.work(W.worker, 0.0)
    backlog.forget(W, ForgetReason.RESTARTED, 0.0)
    work_off(backlog)
    assert sink.claims == {W: set(), OTHER: set(range(5))}


@pytest.mark.parametrize("trusts", [[], [Trust.NONE], [Trust.DEGRADED, Trust.NONE]])
def test_forgetting_leaves_how_far_a_rank_can_be_believed(trusts: list[Trust]) -> None:
    """Its last standing is told though it waits: nobody tells it again."""
    fleet = SmallFleet("w")
    backlog = Backlog(fleet.index, 2)
    backlog.apply(rank("w"), stored(*range(5)), fleet.now)
    for trust in trusts:
        backlog.set_trust(rank("w"), trust, fleet.now)
    assert fleet.trust("w") is Trust.EXACT
    backlog.forget(rank("w"), ForgetReason.WORKER_REMOVED, fleet.now)
    assert not backlog.is_behind(WorkerId("w"))
    assert fleet.trust("w") is (trusts[-1] if trusts else Trust.EXACT)


@pytest.mark.parametrize("medium", ["GPU", "CPU"])
def test_a_clear_of_one_medium_is_told_in_parts(medium: str) -> None:
    fleet = SmallFleet("w")
    names = list(range(100, 150))
    for one in ("GPU", "CPU"):
        fleet.store("w", names, list(range(200)), medium=one)
    backlog = Backlog(fleet.index, 8)
    backlog.apply(rank("w"), EventBatch(0.0, [AllBlocksCleared(medium)]), fleet.now, 5)
    for left in (42, 34, 26, 18, 10, 2):
        backlog.work(WorkerId("w"), fleet.now)
        fleet.index.check()
        tier = Tier.GPU if medium == "GPU" else Tier.HOST
        assert fleet.state("w").blocks[tier] == left
    work_off(backlog)
    assert sum(fleet.state("w").blocks.values()) == 50


def test_the_number_comes_with_the_last_part() -> None:
    fleet = SmallFleet("w")
    backlog = Backlog(fleet.index, 2)
    backlog.apply(rank("w"), stored(*range(5)), 0.0, 7)
    seqs = []
    while backlog.is_behind(WorkerId("w")):
        backlog.work(WorkerId("w"), 0.0)
        seqs.append(fleet.index.mark(rank("w")))
    assert seqs == [None, None, 7]


def test_a_batch_read_from_its_payload_is_told_as_it_is() -> None:
    batch = decode_batch(encode_batch(stored(*range(50))))
    assert [e for p in parts(batch, 7) for e in p.events] == batch.events
