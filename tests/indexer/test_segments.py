"""Long stretches of equal masks: they answer as their blocks would, whatever becomes of any of these."""

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import BlockIndex, Space
from indexer.segments import MIN_BLOCKS, Segments, num_shared
from indexer.slot_bits import FIRST_SLOT, GPU, HOST, NUMBER, OBSERVED, PREDICTED, SLOT
from protocol import BlockKey, KeySpace

SPACE = KeySpace("m")
TRUNK = range(1, 71)
BRANCHES = (range(1_000, 1_090), range(2_000, 2_600))
PROMPTS = [[BlockKey(key) for key in [*TRUNK, *branch]] for branch in BRANCHES]

steps = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim prompt", "release", "release prompt", "strip", "read"]),
        st.sampled_from(range(len(PROMPTS))),
        st.tuples(st.integers(0, 660), st.integers(0, 660)),
        st.integers(0, 1),
        st.sampled_from([GPU, HOST, OBSERVED, PREDICTED, SLOT]),
        st.sampled_from([0, PREDICTED, OBSERVED | PREDICTED]),
    ),
    max_size=25,
)


def packed(keys: Iterable[int]) -> "array[int]":
    return array("Q", keys)


class Truth:
    """Bits by key and slot, block by block."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def change(self, keys: Sequence[int], slot: int, kept: int, added: int) -> None:
        for key in keys:
            row = self._rows.setdefault(key, [0, 0])
            row[slot] = row[slot] & kept | added
        self._rows = {key: row for key, row in self._rows.items() if any(row)}

    def bits(self, key: int, slot: int) -> int:
        return self._rows.get(key, [0, 0])[slot]

    def __contains__(self, key: int) -> bool:
        return key in self._rows


@given(steps, st.booleans())
def test_segments_answer_as_their_blocks_would(
    script: Sequence[tuple[str, int, tuple[int, int], int, int, int]], is_second: bool
) -> None:
    index, truth = BlockIndex(), Truth()
    slots = [index.take_slot(), index.take_slot()]
    if is_second:  # refs of the next space are no plain keys
        index.claim(index.open(KeySpace("other")).refs([BlockKey(1)]), slots[0], GPU)
    for step, number, ends, slot, bits, cleared in script:
        keys = PROMPTS[number][min(ends) : max(ends)]
        refs = index.open(SPACE).refs(keys)
        if step.startswith("claim"):
            claim = index.claim if step == "claim" else index.change_prompt
            claim(refs, slots[slot], bits, cleared)
            truth.change(keys, slot, ~cleared, bits)
        elif step.startswith("release"):
            held = [ref for key, ref in zip(keys, refs, strict=True) if key in truth]
            if step == "release":
                index.release(held, slots[slot], bits)
            else:
                index.change_prompt(held, slots[slot], 0, bits)
            truth.change(keys, slot, ~bits, 0)
        elif step == "strip":
            index.strip(refs, slots[slot])
            truth.change(keys, slot, 0, 0)
        if step == "read":
            assert_equal(index, truth)
        index.drop_unused()
        index.check()
    assert_equal(index, truth)


def assert_equal(index: BlockIndex, truth: Truth) -> None:
    """Every prompt reads as its blocks say."""
    for prompt in PROMPTS:
        for slot in (0, 1):
            expected = [truth.bits(key, slot) for key in prompt]
            assert index.slot_bits(index.open(SPACE), prompt, FIRST_SLOT + slot) == expected


def numbers(space: Space) -> set[int]:
    """Of segments, in the masks of a key space."""
    return {mask & NUMBER for mask in space.masks.values()}


def test_a_long_stretch_is_looked_up_once() -> None:
    index = BlockIndex()
    slot = index.take_slot()
    space = index.open(SPACE)
    prompt = PROMPTS[1]
    index.claim(space.refs(prompt), slot, GPU)
    assert numbers(space) == {0}
    assert index.slot_bits(space, prompt, slot) == [GPU] * len(prompt)
    assert 0 not in numbers(space)
    ends = [0, *(end for end, _ in index.runs(space, prompt).all())]
    assert min(end - start for start, end in pairwise(ends)) >= MIN_BLOCKS


@pytest.mark.parametrize("how", ["claim", "release", "strip"])
def test_a_change_of_any_block_dissolves_its_segment(how: str) -> None:
    index = BlockIndex()
    slot = index.take_slot()
    space = index.open(SPACE)
    refs = space.refs(PROMPTS[0])
    index.change_prompt(refs, slot, GPU, 0)
    assert numbers(space) == {1}
    index.claim(refs[5:9], slot, GPU)  # as it was
    assert index.runs(space, PROMPTS[0]).all() == [(len(refs), space.masks[refs[0]])]
    if how == "claim":
        index.claim(refs[100:101], slot, HOST)
    elif how == "release":
        index.release(refs[100:101], slot, GPU)
    else:
        index.strip(refs[100:101], slot)
    index.drop_unused()
    index.check()
    assert index.runs(space, PROMPTS[0]).of_slot(slot)[0] == (0, 100, GPU)
    assert 1 not in numbers(space), "no number is used twice"
    index.check()


def test_a_segment_answers_from_any_of_its_blocks_on() -> None:
    index = BlockIndex()
    slot = index.take_slot()
    space = index.open(SPACE)
    index.change_prompt(space.refs(PROMPTS[0]), slot, GPU, 0)
    for start in (0, 1, 30, 70, 159):
        runs = index.runs(space, PROMPTS[0][start:])
        assert runs.of_slot(slot) == [(0, 160 - start, GPU)]


def test_the_numbers_of_segments_mean_nothing_once_they_are_dissolved() -> None:
    segments = Segments()
    mask = segments.numbered(GPU << FIRST_SLOT * 8, packed([1, 2, 3]))
    assert segments.get(mask & NUMBER) == packed([1, 2, 3])
    segments.dissolve(mask)
    segments.dissolve(mask)
    assert segments.get(mask & NUMBER) is None
    assert segments.numbered(mask, packed([4])) != mask
    assert (len(segments), segments.num_blocks) == (1, 1)


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_shared_keys_are_counted_to_the_first_that_differs(length: int) -> None:
    for shared in range(1, length + 1):
        one = packed(range(length))
        other = packed([*range(shared), *range(100, 100 + length - shared)])
        assert num_shared(one, 0, other, 0) == shared
        assert num_shared(packed([7, 7, *one]), 2, packed([9, *other]), 1) == shared
        assert num_shared(one[: shared + 1], 0, other, 0) == shared
