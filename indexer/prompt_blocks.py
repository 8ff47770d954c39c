"""One prompt as one rank would keep it: key space, keys, and the tokens behind them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from indexer.block_index import BlockIndex, Ref, Space
from indexer.mask_runs import BitRun, MaskRuns
from protocol import BlockKey, KeySpace, TokenBytes, local_hash, num_tokens


@dataclass(slots=True, eq=False)
class PromptBlocks:
    """The full blocks of a prompt in one key space.

    What is read of an index is kept, and read again only when the index has changed: one request asks for the
    same several times in a row.
    """

    key_space: KeySpace
    keys: Sequence[BlockKey]
    tokens: TokenBytes
    _packed: "array[int] | None" = field(default=None, repr=False)
    _runs: MaskRuns | None = field(default=None, init=False, repr=False)

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.key_space.block_size

    @property
    def num_reusable(self) -> int:
        """Leading blocks that an engine can reuse at most: it computes at least the last token."""
        return min(len(self.keys), (num_tokens(self.tokens) - 1) // self.block_size)

    @property
    def packed_keys(self) -> "array[int]":
        """The keys as they are kept; not to be changed."""
        if self._packed is None:
            self._packed = array("Q", self.keys)
        return self._packed

    def runs(self, index: BlockIndex, space: Space) -> MaskRuns:
        """The masks of the blocks in their key space. O(1), and what it costs to read them."""
        runs = self._runs
        if runs is None or not index.is_current(runs):
            runs = self._runs = index.runs(space, self.keys, self.packed_keys)
        return runs

    def look(self, index: BlockIndex, slot: int) -> tuple[Sequence[Ref], Sequence[BitRun]]:
        """Refs of the blocks, and a rank's bits on them; opens the key space where it is missing."""
        space = index.open(self.key_space)
        return space.refs(self.keys), self.runs(index, space).of_slot(slot)

    def local(self, block: int) -> int:
        """Unchained hash of one block."""
        return local_hash(self.tokens_of(block, block + 1))

    def tokens_of(self, first: int, last: int) -> TokenBytes:
        """Tokens of the blocks from ``first`` up to ``last``, and what the last of them looks ahead to."""
        start = first * self.block_size
        end = last * self.block_size + self.key_space.is_eagle
        return TokenBytes(self.tokens[4 * start : 4 * end])

    def part(self, first: int, last: int) -> "PromptBlocks":
        """The blocks from ``first`` up to ``last`` alone, with their tokens; O(tokens in it)."""
        return PromptBlocks(self.key_space, self.keys[first:last], self.tokens_of(first, last))
