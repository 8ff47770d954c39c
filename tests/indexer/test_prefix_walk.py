"""Runs by engine profile and with storage pools, against walking each slot by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import BlockIndex
from indexer.prefix_walk import Run, SharedBits
from indexer.slot_bits import (
    FIRST_SLOT,
    GPU,
    HOST,
    OBSERVED,
    PREDICTED,
    SLOT,
    STORAGE,
    STRIDE,
    slots_mask,
)
from protocol import BlockKey, KeySpace

SPACE = KeySpace("m")
KEYS = [BlockKey(key) for key in (7, 11, 13, 17, 19, 23, 29, 31)]
RANK_BITS = {"gpu": GPU, "host": HOST, "observed": OBSERVED, "storage": STORAGE, "predicted": PREDICTED}  # fmt: skip
LOWER = ("host", "storage", "pooled", "inferred")

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """Who holds what, by name: a row a block, a column a rank or pool.

    Attributes:
        attached: a rank's pool, by column; None for ranks without.
        gpu_first: by column.
    """

    ranks: Sequence[Sequence[Names]]
    pools: Sequence[Sequence[Names]]
    attached: Sequence[int | None]
    gpu_first: Sequence[bool]


def held(layout: Layout, block: int, rank: int) -> Names:
    """What can be said of one block for one rank, its pool included."""
    own = set(layout.ranks[block][rank])
    pool = layout.attached[rank]
    if pool is not None:
        mates = [r for r, other in enumerate(layout.attached) if other == pool]
        own |= {"mate"} if any("storage" in layout.ranks[block][r] for r in mates) else set()
        own |= layout.pools[block][pool]
    return frozenset(own)


def by_hand(layout: Layout, rank: int) -> Run:
    """The run of one rank, block by block."""
    order = ["gpu", "host", "observed", "storage", "predicted", "mate", "pooled", "inferred"]
    if layout.gpu_first[rank]:
        order = ["gpu", "observed", "host", "storage", "predicted", "mate", "pooled", "inferred"]
    counts = dict.fromkeys(Run._fields, 0)
    is_past, is_lower = False, False
    for block in range(len(layout.ranks)):
        names = held(layout, block, rank)
        if is_past and names:
            counts["predicted"] += 1
            continue
        if is_lower and layout.gpu_first[rank]:
            names -= {"gpu", "observed"}
        name = next((name for name in order if name in names), None)
        if name is None:
            break
        name = "storage" if name == "mate" else name
        is_past, is_lower = name == "predicted", is_lower or name in LOWER
        counts[name] += 1
    return Run(**counts)


def indexed(layout: Layout) -> tuple[BlockIndex, list[SharedBits]]:
    """The same layout as masks: slots of ranks first, then those of pools."""
    index, num_ranks = BlockIndex(), len(layout.attached)
    num_pools = len(layout.pools[0])
    slots = [index.take_slot() for _ in range(num_ranks + num_pools)]
    refs = index.open(SPACE).refs(KEYS[: len(layout.ranks)])
    for ref, ranks, pools in zip(refs, layout.ranks, layout.pools, strict=True):
        columns = [sum(RANK_BITS[name] for name in names) for names in ranks]
        columns += [
            STORAGE * ("pooled" in names) + OBSERVED * ("inferred" in names) for names in pools
        ]
        for slot, bits in zip(slots, columns, strict=True):
            if bits:
                index.claim([ref], slot, bits)
    index.drop_unused()
    index.check()
    shared = []
    for pool in range(num_pools):
        mates = [slots[rank] for rank, other in enumerate(layout.attached) if other == pool]
        shift = slots[num_ranks + pool] * STRIDE
        shared.append(SharedBits(shift, slots_mask(mates, STORAGE), slots_mask(mates, 1)))
    return index, shared


# a rank never has a block both on GPU and observed or predicted there
rank_names = st.sampled_from(
    [
        *(set[str](), {"gpu"}, {"gpu"}, {"host"}, {"gpu", "host"}, {"storage"}, {"observed"}),
        *({"predicted"}, {"host", "storage"}, {"observed", "host"}, {"observed", "storage"}),
        *({"host", "predicted"}, {"storage", "predicted"}, {"gpu", "host", "storage"}),
    ]
).map(frozenset)
pool_names = st.sampled_from(
    [set[str](), set[str](), {"pooled"}, {"inferred"}, {"pooled", "inferred"}]
).map(frozenset)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    num_blocks = draw(st.integers(1, len(KEYS)))
    num_ranks, num_pools = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    pools = st.sampled_from([None, *range(num_pools)])

    def rows(cells: st.SearchStrategy[Names], width: int) -> list[list[Names]]:
        row = st.lists(cells, min_size=width, max_size=width)
        return draw(st.lists(row, min_size=num_blocks, max_size=num_blocks))

    return Layout(
        rows(rank_names, num_ranks),
        rows(pool_names, num_pools),
        draw(st.lists(pools, min_size=num_ranks, max_size=num_ranks)),
        draw(st.lists(st.booleans(), min_size=num_ranks, max_size=num_ranks)),
    )


@given(layouts(), st.data())
def test_runs_are_those_walked_by_hand(layout: Layout, data: st.DataObject) -> None:
    index, shared = indexed(layout)
    ranks = data.draw(st.sets(st.integers(0, len(layout.attached) - 1)))
    slots = {rank: FIRST_SLOT + rank for rank in ranks}
    seen = slots_mask(slots.values(), 1)
    runs = index.match(
        index.runs(index.open(SPACE), KEYS[: len(layout.ranks)]),
        slots_mask(slots.values()),
        frozenset(slots[rank] for rank in ranks if layout.gpu_first[rank]),
        [pool._replace(credited=pool.credited & seen) for pool in shared],
    )
    for rank in ranks:
        assert runs.get(slots[rank], Run()) == by_hand(layout, rank), rank
    assert runs.keys() <= set(slots.values())


G, H, S, O, GH = GPU, HOST, STORAGE, OBSERVED, GPU | HOST  # noqa: E741


@pytest.mark.parametrize(
    ("column", "any_tier", "gpu_first"),
    [
        ([G, H, G], Run(gpu=2, host=1), Run(gpu=1, host=1)),
        ([H, G, G], Run(gpu=2, host=1), Run(host=1)),
        ([G, GH, H, GH], Run(gpu=3, host=1), Run(gpu=2, host=2)),
        ([G, S, H, S], Run(gpu=1, host=1, storage=2), Run(gpu=1, host=1, storage=2)),
        ([O, O | H, G], Run(gpu=1, host=1, observed=1), Run(gpu=1, observed=2)),
        ([H, O, H], Run(host=2, observed=1), Run(host=1)),
        ([G, H, PREDICTED, G], Run(gpu=1, host=1, predicted=2), Run(gpu=1, host=1, predicted=2)),
    ],
)
def test_what_each_engine_goes_on_with(column: list[int], any_tier: Run, gpu_first: Run) -> None:
    index = BlockIndex()
    slot = index.take_slot()
    for ref, bits in zip(index.open(SPACE).refs(KEYS), column, strict=False):
        index.claim([ref], slot, bits)
    runs = index.runs(index.open(SPACE), KEYS[: len(column)])
    assert index.match(runs, slots_mask([slot])) == {slot: any_tier}
    assert index.match(runs, slots_mask([slot]), frozenset({slot})) == {slot: gpu_first}


def test_a_pool_credits_ranks_that_hold_nothing() -> None:
    index = BlockIndex()
    idle, pool = index.take_slot(), index.take_slot()
    for ref in index.open(SPACE).refs(KEYS[:3]):
        index.claim([ref], pool, STORAGE)
    shared = SharedBits(pool * STRIDE, 0, slots_mask([idle], 1))
    runs = index.runs(index.open(SPACE), KEYS)
    assert index.match(runs, slots_mask([idle]), frozenset(), [shared]) == {idle: Run(pooled=3)}
    assert index.match(runs, slots_mask([idle])) == {}


def test_index_masks_have_no_bit_of_a_lookup() -> None:
    assert slots_mask([1]) == 255 << STRIDE
    assert SLOT == 31
