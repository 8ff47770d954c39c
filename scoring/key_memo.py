"""A memo of block keys, so that of a prompt that grows only the new blocks are hashed.

Keys are chained, so those of a shared beginning are the same, and the last of them is all that the next one
needs to know of what came before. Bounded in bytes: there prompts that were not asked for the longest go, and
are hashed anew when they come back. Prompts of fewer than 1,024 tokens are hashed as ever.
"""

from prompt import PrefixTable, TableLimits, chunk_names
from protocol import BlockKey, TokenBytes, block_keys

_TOKEN_BYTES = 4
_KEY_BYTES = 48


class KeyMemo:
    """Keys by tokens and geometry. Room for no bytes keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self._table: PrefixTable[bytes, list[BlockKey]] = PrefixTable(TableLimits(max_bytes))

    def keys(self, tokens: TokenBytes, block_size: int, *, is_eagle: bool) -> list[BlockKey]:
        """As `block_keys` makes them; the list may be shared. O(bytes), and the new blocks are hashed."""
        space = 2 * block_size + is_eagle
        names = chunk_names(space, tokens)
        if not names:
            return block_keys(tokens, block_size, is_eagle=is_eagle)
        found = self._table.find(space, tokens, names)
        stride = _TOKEN_BYTES * block_size
        known: list[BlockKey] = []
        if found is not None:
            num_common = max(0, found.num_common - _TOKEN_BYTES * is_eagle)
            known = found.value[: num_common // stride]
        rest = TokenBytes(tokens[stride * len(known) :]) if known else tokens
        parent = known[-1] if known else None
        new = block_keys(rest, block_size, parent=parent, is_eagle=is_eagle)
        keys = known + new
        if new:
            self._table.put(space, tokens, names, keys, _KEY_BYTES * len(keys))
        return keys

    def check(self) -> None:
        """Verify the invariants."""
        self._table.check()
