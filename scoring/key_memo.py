"""A memo of block keys, so that of a prompt that grows only the new blocks are hashed.

Keys are chained, so those of a shared beginning are the same, and the last of them is all that the next one
needs to know of what came before. Bounded in bytes: there prompts that were not asked for the longest go, and
are hashed anew when they come back. Prompts of fewer than 1,024 tokens are hashed as ever.
"""

from array import array
from typing import NamedTuple

from prompt import PrefixTable, TableLimits, chunk_names
from protocol import BlockKey, TokenBytes, block_keys

_TOKEN_BYTES = 4
_KEY_BYTES = 56


class HashedPrompt(NamedTuple):
    """The keys of a prompt's blocks, as they are looked up, and packed, as they are kept. Neither is ever changed."""

    keys: list[BlockKey]
    packed: "array[int]"


class KeyMemo:
    """Keys by tokens and geometry. Room for no bytes keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self._table: PrefixTable[bytes, HashedPrompt] = PrefixTable(TableLimits(max_bytes))

    def hashed(self, tokens: TokenBytes, block_size: int, *, is_eagle: bool) -> HashedPrompt:
        """As `block_keys` makes the keys; they may be shared. O(bytes), and the new blocks are hashed."""
        space = 2 * block_size + is_eagle
        names = chunk_names(space, tokens)
        if not names:
            return _packed(block_keys(tokens, block_size, is_eagle=is_eagle))
        found = self._table.find(space, tokens, names)
        stride = _TOKEN_BYTES * block_size
        num_known = 0
        if found is not None:
            num_common = max(0, found.num_common - _TOKEN_BYTES * is_eagle)
            num_known = min(num_common // stride, len(found.value.keys))
        if found is None or not num_known:
            hashed = _packed(block_keys(tokens, block_size, is_eagle=is_eagle))
        else:
            hashed = _gone_on(found.value, num_known, tokens, block_size, is_eagle=is_eagle)
        if len(hashed.keys) > num_known:
            self._table.put(space, tokens, names, hashed, _KEY_BYTES * len(hashed.keys))
        return hashed

    def check(self) -> None:
        """Verify the invariants."""
        self._table.check()


def _gone_on(
    known: HashedPrompt, num_known: int, tokens: TokenBytes, block_size: int, *, is_eagle: bool
) -> HashedPrompt:
    """The keys of a prompt of which so many blocks, at least one, are known."""
    rest = TokenBytes(tokens[_TOKEN_BYTES * block_size * num_known :])
    keys, packed = known.keys[:num_known], known.packed[:num_known]
    new = block_keys(rest, block_size, parent=keys[-1], is_eagle=is_eagle)
    keys += new
    packed.extend(new)
    return HashedPrompt(keys, packed)


def _packed(keys: list[BlockKey]) -> HashedPrompt:
    return HashedPrompt(keys, array("Q", keys))
