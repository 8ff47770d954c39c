import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from protocol import TokenRangeError, block_keys, local_hash, num_tokens, pack_tokens

tokens_of = st.lists(st.integers(0, (1 << 32) - 1), max_size=64)


def reference_keys(tokens: list[int], block_size: int) -> list[int]:
    """The public convention, written out with struct and the xxhash package."""
    keys: list[int] = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = struct.pack(f"<{block_size}I", *tokens[start : start + block_size])
        local = xxhash.xxh3_64_intdigest(block, seed=1337)
        keys.append(chained(keys[-1] if keys else None, local))
    return keys


def chained(parent: int | None, local: int) -> int:
    """Key of the block with this local hash after ``parent``."""
    if parent is None:
        return local
    return xxhash.xxh3_64_intdigest(struct.pack("<QQ", parent, local), seed=1337)


@given(tokens_of, st.integers(1, 20))
def test_keys_follow_the_public_convention(tokens: list[int], block_size: int) -> None:
    assert block_keys(pack_tokens(tokens), block_size) == reference_keys(tokens, block_size)


def test_known_vectors() -> None:
    """Fixed values: a change of convention cannot pass unseen."""
    assert local_hash(pack_tokens([1, 2, 3, 4])) == 14643705804678351452
    assert local_hash(pack_tokens([5, 6, 7, 8])) == 16777012769546811212
    assert block_keys(pack_tokens(range(1, 9)), 4) == [14643705804678351452, 4945711292740353085]


@given(tokens_of, st.integers(1, 8), st.integers(0, 8))
def test_a_chain_can_be_taken_up_at_any_block(tokens: list[int], size: int, cut: int) -> None:
    whole = block_keys(pack_tokens(tokens), size)
    cut = min(cut, len(whole))
    parent = whole[cut - 1] if cut else None
    assert block_keys(pack_tokens(tokens[cut * size :]), size, parent=parent) == whole[cut:]


@given(tokens_of, st.integers(1, 8))
def test_eagle_blocks_overlap_by_one_token(tokens: list[int], size: int) -> None:
    keys = block_keys(pack_tokens(tokens), size, is_eagle=True)
    assert len(keys) == max(len(tokens) - 1, 0) // size
    expected: int | None = None
    for index, key in enumerate(keys):
        block = pack_tokens(tokens[index * size : (index + 1) * size + 1])
        expected = chained(expected, local_hash(block))
        assert key == expected


def test_multimodal_ids_change_keys_from_their_block_on() -> None:
    tokens = pack_tokens(range(12))
    plain = block_keys(tokens, 4)
    image = block_keys(tokens, 4, multimodal={1: [9, 7]})
    assert image[0] == plain[0]
    assert image[1] != plain[1]
    assert image[2] != plain[2]
    block = tokens[16:32] + struct.pack("<QQ", 7, 9)
    assert image[1] == chained(plain[0], xxhash.xxh3_64_intdigest(block, seed=1337))
    assert image == block_keys(tokens, 4, multimodal={1: [7, 9]})


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_tokens_beyond_32_bits_have_no_key(token: int) -> None:
    with pytest.raises(TokenRangeError):
        pack_tokens([1, token])


def test_packed_tokens_are_little_endian() -> None:
    assert pack_tokens([1, 1 << 31]) == b"\x01\x00\x00\x00\x00\x00\x00\x80"
    assert num_tokens(pack_tokens([5, 6, 7])) == 3


def test_block_size_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="block_size"):
        block_keys(pack_tokens([1]), 0)
