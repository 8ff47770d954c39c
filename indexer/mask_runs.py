"""The masks along one prompt, as runs of blocks that have the same: read once, as long as nothing changes.

    masks    a a a a a b b b 0 0
    runs     (5, a)    (8, b) (10, 0)        each up to the block before its number

Blocks of one prefix have nearly always the same holders, so a prompt of thousands of blocks is a few runs, and
whoever asks about it costs the number of runs. Only the first to ask reads block by block, and only as far as
it asks: what nobody holds is not read to its end.
"""

from array import array
from collections.abc import Sequence
from itertools import groupby, repeat
from typing import NamedTuple, TypeVar

from indexer.segments import MIN_BLOCKS, Segments, num_shared
from indexer.slot_bits import NUMBER, SLOT, STRIDE

Block = TypeVar("Block")
_READ_AT_ONCE = 512


class BitRun(NamedTuple):
    """The blocks from ``start`` up to ``end`` have the same ``bits`` in one slot."""

    start: int
    end: int
    bits: int


def numbers_of(runs: Sequence[BitRun]) -> list[int]:
    """Numbers of the blocks in runs; O(blocks in them)."""
    return [number for run in runs for number in range(run.start, run.end)]


def parts_of(blocks: Sequence[Block], runs: Sequence[BitRun]) -> Sequence[Block]:
    """Those of a prompt's blocks that are in the runs; O(blocks in them), and O(1) for all that there are."""
    if not runs:
        return ()
    start, end = runs[0].start, runs[-1].end
    if sum(run.end - run.start for run in runs) == end - start:
        return blocks[start:end] if start or end < len(blocks) else blocks
    return [block for start, end, _ in runs for block in blocks[start:end]]


class MaskRuns:
    """Runs of a prompt's blocks. O(blocks) once, in all that is asked.

    Args:
        masks: by key.
        segments: whose numbers are in the masks.
        keys: of the prompt's blocks.
        packed: the same; None to have them packed where that is needed.
        index, version: whose masks they are; while it has that version, what was read is true.

    Attributes:
        read: number of the blocks up to the end of each run, and their mask, as far as was asked; runs with one mask
            may follow each other.
    """

    __slots__ = ("_keys", "_masks", "_num_read", "_packed", "_segments", "index", "read", "version")

    def __init__(
        self,
        masks: dict[int, int],
        segments: Segments,
        keys: Sequence[int],
        packed: "array[int] | None",
        index: object,
        version: int,
    ) -> None:
        self.index = index
        self.version = version
        self.read: list[tuple[int, int]] = []
        self._masks = masks
        self._segments = segments
        self._keys = keys
        self._packed = packed
        self._num_read = 0

    @property
    def packed(self) -> "array[int]":
        """The keys, packed. O(blocks) once."""
        if self._packed is None:
            self._packed = array("Q", self._keys)
        return self._packed

    def more(self) -> bool:
        """Read some blocks more, at least a run; False where there are none."""
        begin = self._num_read
        if begin == len(self._keys):
            return False
        mask = self._masks.get(self._keys[begin], 0)
        alike = self._segments.get(mask & NUMBER) if mask & NUMBER else None
        if alike is None:
            self._read_blocks(begin)
        else:
            place = 0 if alike[0] == self._keys[begin] else alike.index(self._keys[begin])
            self._num_read += num_shared(self.packed, begin, alike, place)
            self.read.append((self._num_read, mask))
        return True

    def all(self) -> list[tuple[int, int]]:
        """Every run."""
        while self.more():
            pass
        return self.read

    def of_slot(self, slot: int) -> list[BitRun]:
        """The slot's bits on all blocks; runs that follow each other differ. O(runs), once all are read."""
        shift = slot * STRIDE
        found: list[BitRun] = []
        start, begun, last = 0, 0, -1
        for end, mask in self.all():
            bits = mask >> shift & SLOT
            if bits != last:
                if start > begun:
                    found.append(BitRun(begun, start, last))
                begun, last = start, bits
            start = end
        if start > begun:
            found.append(BitRun(begun, start, last))
        return found

    def _read_blocks(self, begin: int) -> None:
        """Look some blocks up, up to the next segment."""
        part = self._keys[begin : begin + _READ_AT_ONCE]
        for held, alike in groupby(map(self._masks.get, part, repeat(0))):
            if held & NUMBER and self._segments.get(held & NUMBER) is not None:
                return
            start, mask = self._num_read, held
            end = self._num_read = start + len(list(alike))
            if held and end - start >= MIN_BLOCKS:
                mask = self._segments.numbered(held, self.packed[start:end])
                self._masks.update(dict.fromkeys(self._keys[start:end], mask))
            self.read.append((end, mask))
