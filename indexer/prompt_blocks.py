"""One prompt as one rank would keep it: key space, keys, and the tokens behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

from indexer.block_index import BlockIndex, Ref
from protocol import BlockKey, KeySpace, TokenBytes, local_hash, num_tokens


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """The full blocks of a prompt in one key space."""

    key_space: KeySpace
    keys: Sequence[BlockKey]
    tokens: TokenBytes

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.key_space.block_size

    @property
    def num_reusable(self) -> int:
        """Leading blocks that an engine can reuse at most: it computes at least the last token."""
        return min(len(self.keys), (num_tokens(self.tokens) - 1) // self.block_size)

    def look(self, index: BlockIndex, slot: int) -> tuple[Sequence[Ref], Sequence[int]]:
        """Refs of the blocks, and a rank's bits on each; opens the key space where it is missing."""
        space = index.open(self.key_space)
        return space.refs(self.keys), index.slot_bits(space, self.keys, slot)

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
