"""Block keys: one 64-bit name for "this block after exactly these tokens".

The convention is the public one of Mooncake and Dynamo, so that hashes can be exchanged:

    local(block) = XXH3-64(tokens as little-endian u32 ‖ multimodal ids as sorted u64, seed 1337)
    key[0]       = local[0]
    key[i]       = XXH3-64(key[i-1] LE ‖ local[i] LE, seed 1337)

Keys of overlapping-pair (EAGLE) engines hash ``block_size + 1`` tokens a block and live in a key space
of their own. Model, adapter and salt select a key space; they never enter the chain.
"""

import sys
from array import array
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple, cast

from xxhash import xxh3_64_intdigest

from protocol.ids import BlockKey, TokenBytes

SEED = 1337
_PAIR = Struct("<QQ")


class TokenRangeError(ValueError):
    """A token id is negative or beyond 32 bits: it has no key."""


class KeySpace(NamedTuple):
    """Blocks are comparable within one key space only. A tuple, for it is a key of tables."""

    model: str
    adapter: str | None = None
    salt: str | None = None
    block_size: int = 16
    is_eagle: bool = False


def pack_tokens(token_ids: Sequence[int]) -> TokenBytes:
    """Token ids as consecutive little-endian u32.

    Raises:
        TokenRangeError: an id is negative or beyond 32 bits.
    """
    try:
        packed = array("I", token_ids)
    except OverflowError as error:
        raise TokenRangeError("a token id is negative or beyond 32 bits") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return TokenBytes(packed.tobytes())


def num_tokens(tokens: TokenBytes) -> int:
    """Number of ids in packed tokens."""
    return len(tokens) // 4


def block_keys(
    tokens: TokenBytes,
    block_size: int,
    *,
    parent: BlockKey | None = None,
    is_eagle: bool = False,
    multimodal: Mapping[int, Sequence[int]] | None = None,
) -> list[BlockKey]:
    """Keys of all full blocks of ``tokens``; a partial last block has none.

    O(tokens).

    Args:
        tokens: packed ids, from the block after ``parent``.
        block_size: tokens a block, at least 1.
        parent: key of the block before the first one; None at the start of a prompt.
        is_eagle: hash one token more than the block holds.
        multimodal: block index → u64 ids of the items that the block touches.

    Returns:
        One key a block, in order.
    """
    if block_size < 1:
        raise ValueError("block_size is at least 1")
    stride = 4 * block_size
    width = stride + 4 if is_eagle else stride
    digest, pack = xxh3_64_intdigest, _PAIR.pack
    keys: list[int] = []
    previous: int | None = parent
    for start in range(0, len(tokens) - width + 1, stride):
        block = tokens[start : start + width]  # a copy of this size costs less than a view of it
        if multimodal and (ids := multimodal.get(start // stride)):
            block += array("Q", sorted(ids)).tobytes()
        local = digest(block, SEED)
        previous = local if previous is None else digest(pack(previous, local), SEED)
        keys.append(previous)
    return cast("list[BlockKey]", keys)


def local_hash(block: bytes) -> int:
    """Unchained hash of one block's packed tokens."""
    return xxh3_64_intdigest(block, SEED)
