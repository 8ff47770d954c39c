"""Masks, slots and runs against walking by hand."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import BlockIndex, Ref
from indexer.prefix_walk import Run
from indexer.slot_bits import (
    ANNOUNCED,
    FIRST_SLOT,
    GPU,
    HOST,
    OBSERVED,
    PREDICTED,
    STORAGE,
    slots_mask,
)
from protocol import BlockKey, KeySpace

SPACE = KeySpace("m")
KEYS = [BlockKey(key) for key in (7, 11, 13, 17, 19, 23)]


def by_hand(column: Sequence[int]) -> Run:
    """The run of one slot, given its bits along the prompt."""
    counts = dict.fromkeys(Run._fields, 0)
    is_past = False
    for bits in column:
        if not bits:
            break
        is_past = is_past or bits == PREDICTED
        if is_past:
            counts["predicted"] += 1
        else:
            order = [(GPU, "gpu"), (HOST, "host"), (OBSERVED, "observed"), (STORAGE, "storage")]
            counts[next(name for bit, name in order if bits & bit)] += 1
    return Run(**counts)


def filled(rows: Sequence[Sequence[int]], space: KeySpace = SPACE) -> BlockIndex:
    """An index where row = block, column = slot."""
    index = BlockIndex()
    for _ in rows[0]:
        index.take_slot()
    refs = index.open(space).refs(KEYS[: len(rows)])
    for ref, row in zip(refs, rows, strict=True):
        for slot, bits in enumerate(row, FIRST_SLOT):
            if bits:
                index.claim([ref], slot, bits)
    index.drop_unused()
    index.check()
    return index


def matched(index: BlockIndex, key_space: KeySpace, slots: Sequence[int]) -> dict[int, Run]:
    """What is found of all keys in a space."""
    space = index.find(key_space)
    return {} if space is None else index.match(index.runs(space, KEYS), slots_mask(slots))


slot_bits = st.sampled_from([0, GPU, GPU, HOST, GPU | HOST, STORAGE, OBSERVED, PREDICTED, 31])
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(slot_bits, min_size=width, max_size=width), min_size=1, max_size=len(KEYS)
    )
)


@given(tables, st.data())
def test_match_is_the_walk_by_hand(rows: list[list[int]], data: st.DataObject) -> None:
    index = filled(rows)
    width = len(rows[0])
    slots = data.draw(st.lists(st.integers(FIRST_SLOT, FIRST_SLOT + width - 1), unique=True))
    runs = matched(index, SPACE, slots)
    for slot in slots:
        expected = by_hand([row[slot - FIRST_SLOT] for row in rows])
        assert runs.get(slot, Run()) == expected
    assert runs.keys() <= set(slots)


@given(tables)
def test_bits_read_back_and_releasing_all_leaves_nothing(rows: list[list[int]]) -> None:
    index = filled(rows)
    space = index.find(SPACE)
    for slot in range(FIRST_SLOT, FIRST_SLOT + len(rows[0])):
        column = [row[slot - FIRST_SLOT] for row in rows]
        if space is not None:
            assert index.slot_bits(space, KEYS[: len(rows)], slot) == column
        held = [(ref, bits) for ref, bits in index.blocks_of(slot)]
        assert [bits for _, bits in held] == [bits for bits in column if bits]
        for ref, bits in held:
            index.release([ref], slot, bits)
            index.check()
        index.free_slot(slot)
    assert (index.num_blocks, index.num_spaces) == (0, 0)
    index.check()


def test_freed_slots_are_taken_again_lowest_first() -> None:
    index = BlockIndex()
    one, two, three, four = (index.take_slot() for _ in range(4))
    assert (two, three, four) == (one + 1, one + 2, one + 3)
    index.free_slot(three)
    index.free_slot(one)
    assert [index.take_slot() for _ in range(3)] == [one, three, four + 1]


def test_equal_masks_are_one_object() -> None:
    index = BlockIndex()
    slot = max(index.take_slot() for _ in range(40))  # beyond what Python shares by itself
    refs = index.open(SPACE).refs(KEYS)
    for ref in refs:
        index.claim([ref], slot, GPU)
    space = index.find(SPACE)
    assert space is not None
    assert len({id(mask) for mask in space.masks.values()}) == 1


def test_a_ref_outlives_its_space_and_names_nothing() -> None:
    index = BlockIndex()
    slot = index.take_slot()
    (ref,) = index.open(SPACE).refs(KEYS[:1])
    index.claim([ref], slot, GPU)
    index.release([ref], slot, GPU)
    assert index.space_of(ref) is None
    assert index.bits(ref, slot) == 0
    (again,) = index.open(SPACE).refs(KEYS[:1])
    assert again != ref


def test_claim_and_release_tell_what_they_met() -> None:
    index = BlockIndex()
    slot = index.take_slot()
    first, second = index.open(SPACE).refs(KEYS[:2])
    assert index.claim([first, second], slot, OBSERVED) == []
    assert index.claim([first], slot, HOST) == []
    assert index.claim([first, second], slot, GPU, OBSERVED | PREDICTED) == [
        (first, OBSERVED | HOST),
        (second, OBSERVED),
    ]
    assert index.claim([second], slot, GPU) == [(second, GPU)]
    index.claim([second], slot, OBSERVED)
    assert index.release([first, second], slot, GPU | OBSERVED) == [(second, GPU | OBSERVED)]
    assert [index.bits(ref, slot) for ref in (first, second)] == [HOST, 0]


def test_spaces_do_not_share_blocks() -> None:
    index = BlockIndex()
    slot = index.take_slot()
    for key_space in (SPACE, KeySpace("m", adapter="a"), KeySpace("m", salt="s")):
        index.claim(index.open(key_space).refs(KEYS[:2]), slot, GPU)
    index.release(index.open(KeySpace("m", adapter="a")).refs(KEYS[:2]), slot, GPU)
    assert matched(index, SPACE, [slot]) == {slot: Run(gpu=2)}
    assert matched(index, KeySpace("m", adapter="a"), [slot]) == {}
    assert index.num_spaces == 2
    index.drop_unused()
    index.check()


def test_an_unused_space_is_dropped() -> None:
    index = BlockIndex()
    index.open(SPACE)
    index.drop_unused()
    assert index.num_spaces == 0
    index.check()


def test_check_dumps_a_broken_invariant() -> None:
    index = filled([[GPU]])
    index.free_slot(FIRST_SLOT)
    with pytest.raises(AssertionError, match="free slot"):
        index.check()


def test_a_thousand_slots() -> None:
    index = BlockIndex()
    slots = [index.take_slot() for _ in range(1000)]
    refs = index.open(SPACE).refs(KEYS)
    for slot in slots:
        index.claim(refs[: slot % 7], slot, GPU if slot % 2 else HOST)
    index.drop_unused()
    runs = matched(index, SPACE, slots)
    for slot in slots:
        run = runs.get(slot, Run())
        assert (run.length, run.gpu + run.host) == (slot % 7, slot % 7)
    assert (ANNOUNCED, Ref(5)) == (7, 5)
