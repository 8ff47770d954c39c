"""Long stretches of blocks along one prompt that have equal masks: looked up once, and compared in one go.

Looked up one by one, thousands of blocks cost thousands of steps through memory, although nearly all of them say
the same. So a long stretch of equal masks is numbered, its number stands in the masks of its blocks, and here are the
keys: the first block's lookup answers for all, once these are compared with the prompt's, in order, which costs a
tenth.

    blocks   a b c d e f g h          masks of a … f: holders and number 7        7: keys a b c d e f
    prompt   a b c d x                a is looked up: a b c d are alike, and x is the next lookup

Keys are chained, so a block has one predecessor and lies in one stretch at most. Whoever gives any block of a
segment another mask dissolves the segment before. Its number stays in the other blocks' masks and means nothing any
more, for none is used twice, until a lookup makes a new segment of them.
"""

from array import array

from indexer.slot_bits import NUMBER

MIN_BLOCKS = 16
"""Shorter stretches are looked up block by block."""


class Segments:
    """The keys of every segment, by number; packed, which is small, quick to compare, and nothing to the collector.

    Attributes:
        num_blocks: in all segments.
    """

    def __init__(self) -> None:
        self._keys: dict[int, array[int]] = {}
        self._last_number = 0
        self.num_blocks = 0
        self.get = self._keys.get  # called for every run that is read

    def __len__(self) -> int:
        return len(self._keys)

    def numbered(self, mask: int, keys: "array[int]") -> int:
        """The mask that these blocks, which have ``mask``, are given next: the same with the number of a new segment.
        O(1)."""
        self._last_number += 1
        self._keys[self._last_number] = keys
        self.num_blocks += len(keys)
        return mask & ~NUMBER | self._last_number

    def dissolve(self, mask: int) -> None:
        """A block with this mask is about to have another one."""
        keys = self._keys.pop(mask & NUMBER, None)
        if keys is not None:
            self.num_blocks -= len(keys)

    def check(self, masks: dict[int, int]) -> set[int]:
        """Verify what masks of one key space say of segments; returns the numbers of these. O(blocks)."""
        assert self.num_blocks == sum(map(len, self._keys.values()))
        found = {mask & NUMBER for mask in masks.values()} & self._keys.keys()
        for number in found:
            mask = masks.get(self._keys[number][0], 0)
            assert mask & NUMBER == number, f"a broken segment: {number}"
            assert all(masks.get(key) == mask for key in self._keys[number]), (
                f"a broken segment: {number}"
            )
        return found


def num_shared(keys: "array[int]", start: int, other: "array[int]", other_start: int) -> int:
    """How many keys two prompts share from these places on, where the first is the same. O(blocks)."""
    length = min(len(keys) - start, len(other) - other_start)
    rest = other if length == len(other) else other[other_start : other_start + length]
    if keys[start : start + length] == rest:
        return length
    low, high = 0, length - 1
    while low < high:  # keys are chained: after the first that differs all do
        middle = (low + high) // 2
        if keys[start + middle] == other[other_start + middle]:
            low = middle + 1
        else:
            high = middle
    return low
