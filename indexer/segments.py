"""A mask that many blocks in a row along one prompt share, and which says which blocks they are.

Looked up one by one, thousands of blocks cost thousands of steps through memory, although nearly all of them say
the same. So a long stretch of equal masks gets a mask of its own, equal to the others in value, that knows the keys
of its stretch: the first block's lookup answers for all, once their keys are compared with the prompt's, in order,
which costs a tenth.

    blocks   a b c d e f g h          masks of a … f: one Segment, keys (a b c d e f)
    prompt   a b c d x                a is looked up: a b c d are alike, and x is the next lookup

Keys are chained, so a block has one predecessor and lies in one stretch at most. Whoever gives any block of a
segment another mask dissolves the segment before: then it is a mask like any other, until a lookup makes a new one.
"""

from collections.abc import Sequence

MIN_BLOCKS = 16
"""Shorter stretches are looked up block by block."""


class Segment(int):
    """A mask and the keys of the blocks that have it; none of them once it is dissolved."""

    keys: Sequence[int]

    def dissolve(self) -> None:
        """A block of it is about to have another mask."""
        self.keys = ()


def segment(mask: int, keys: Sequence[int]) -> Segment:
    """One for these blocks, which are given it next. O(blocks)."""
    made = Segment(mask)
    made.keys = keys
    return made


def num_shared(keys: Sequence[int], start: int, other: Sequence[int], other_start: int) -> int:
    """How many keys two prompts share from these places on. O(blocks)."""
    length = min(len(keys) - start, len(other) - other_start)
    if keys[start : start + length] == other[other_start : other_start + length]:
        return length
    low, high = 0, length - 1
    while low < high:  # keys are chained: after the first that differs all do
        middle = (low + high) // 2
        if keys[start + middle] == other[other_start + middle]:
            low = middle + 1
        else:
            high = middle
    return low
