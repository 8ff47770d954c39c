"""The masks along a prompt, read run by run: the same as block by block, and no further than is asked."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import BlockIndex
from indexer.mask_runs import BitRun, MaskRuns, numbers_of, parts_of
from indexer.segments import Segments
from indexer.slot_bits import FIRST_SLOT, GPU, HOST, NUMBER, OBSERVED, PREDICTED, SLOT, STRIDE
from protocol import BlockKey, KeySpace

SPACE = KeySpace("m")

lengths = st.lists(
    st.tuples(st.sampled_from([0, GPU, HOST, GPU << STRIDE, SLOT]), st.integers(1, 700)), max_size=5
)


@given(lengths, st.integers(0, 1))
def test_runs_are_the_masks_block_by_block(parts: Sequence[tuple[int, int]], slot: int) -> None:
    slot += FIRST_SLOT
    masks = [mask << FIRST_SLOT * STRIDE for mask, length in parts for _ in range(length)]
    keys = range(1, len(masks) + 1)
    table = {key: mask for key, mask in zip(keys, masks, strict=True) if mask}
    runs = MaskRuns(table, Segments(), keys, None, table, 0)
    expected = [mask >> slot * STRIDE & SLOT for mask in masks]
    for _ in range(2):  # what was read is kept
        starts = [0, *(end for end, _ in runs.all())]
        read = [
            mask
            for start, (end, mask) in zip(starts, runs.all(), strict=False)
            for _ in range(start, end)
        ]
        assert [mask & ~NUMBER for mask in read] == masks
        found = runs.of_slot(slot)
        assert [bits for start, end, bits in found for _ in range(start, end)] == expected
        assert all(a.bits != b.bits for a, b in pairwise(found))


class _Asked(dict[int, int]):
    """Counts the lookups."""

    num_asked = 0

    def get(self, key: int, default: int = 0) -> int:  # type: ignore[override]
        self.num_asked += 1
        return super().get(key, default)


def test_only_what_is_asked_is_read() -> None:
    masks = _Asked()
    runs = MaskRuns(masks, Segments(), range(100_000), None, None, 0)
    assert runs.more()
    assert runs.read[0][1] == 0
    assert masks.num_asked < 1_000


def test_runs_are_current_until_a_mask_changes() -> None:
    index = BlockIndex()
    slot = index.take_slot()
    space = index.open(SPACE)
    refs = space.refs([BlockKey(number) for number in range(1, 9)])
    runs = index.runs(space, [BlockKey(1)])
    assert index.is_current(runs)
    assert not BlockIndex().is_current(runs)
    for change in (
        lambda: index.claim(refs[:1], slot, GPU),
        lambda: index.change_prompt(refs, slot, HOST, 0),
        lambda: index.release(refs[:1], slot, GPU),
        lambda: index.strip(refs, slot),
    ):
        runs = index.runs(index.open(SPACE), [BlockKey(1)])
        change()
        assert not index.is_current(runs)


bits = st.sampled_from([GPU, HOST, OBSERVED, PREDICTED, OBSERVED | HOST, SLOT])


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 1), bits), max_size=6
    ),
    st.sets(st.integers(0, 9), min_size=1),
    bits,
    bits,
    st.booleans(),
)
def test_a_prompt_is_claimed_as_its_blocks_one_by_one(
    before: Sequence[tuple[set[int], int, int]],
    chosen: set[int],
    added: int,
    cleared: int,
    is_second: bool,
) -> None:
    indexes = BlockIndex(), BlockIndex()
    for number, index in enumerate(indexes):
        slots = [index.take_slot(), index.take_slot()]
        if is_second:
            index.open(KeySpace("other"))  # refs of the next one are not plain keys
        refs = index.open(SPACE).refs([BlockKey(key) for key in range(1, 11)])
        for blocks, slot, held in before:
            index.claim([refs[i] for i in blocks], slots[slot], held)
        part = [refs[i] for i in sorted(chosen)]
        if number:
            index.change_prompt(part, slots[0], added, cleared)
        else:
            index.claim(part, slots[0], added, cleared)
        index.drop_unused()
        index.check()
    one, other = (
        {key: mask & ~NUMBER for key, mask in index.open(SPACE).masks.items()} for index in indexes
    )
    assert one == other


def test_parts_are_the_blocks_of_runs() -> None:
    blocks = "abcdefgh"
    runs = [BitRun(1, 3, GPU), BitRun(3, 4, HOST), BitRun(6, 8, 0)]
    assert "".join(parts_of(blocks, runs)) == "bcdgh"
    assert numbers_of(runs) == [1, 2, 3, 6, 7]
    assert parts_of(blocks, runs[:2]) == "bcd"
    assert parts_of(blocks, [BitRun(0, 8, 0)]) is blocks
    assert parts_of(blocks, []) == ()
