"""Prompts made from block ids, exact to the block.

    hash_ids   [  a         |  b         |  c   ]        input_length = 2 · block_size + 3
    tokens     a0 a1 … a511 | b0 b1 … b511 | c0 c1 c2

Equal ids give equal tokens, and different ids different ones: a block begins with its id, written in
digits of the vocabulary, lowest first, and goes on with pseudo-random words. A partial block of n tokens
tells ids apart that differ in their n lowest digits.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import shake_128

from loadgen.trace import BLOCK_SIZE, TraceRecord

_MAX_ID_BITS = 63
_CACHED_BLOCKS = 4096


class BlockSynthesis:
    """Turns block ids into tokens. Blocks made lately are kept, ``_CACHED_BLOCKS`` of them."""

    def __init__(
        self, token_ids: Sequence[int], *, block_size: int = BLOCK_SIZE, seed: int = 0
    ) -> None:
        """Choose the vocabulary.

        Args:
            token_ids: distinct ids to make blocks of, 2 to 65,536.
            block_size: tokens a block; room for one id in digits of the vocabulary.
            seed: another seed gives other words after the same digits.

        Raises:
            ValueError: too few ids, or a block too small to hold its id.
        """
        self._vocabulary = tuple(token_ids[: 1 << 16])
        self._num_digits = _num_digits(len(self._vocabulary))
        if block_size < self._num_digits:
            raise ValueError(f"a block of {block_size} tokens cannot hold its id")
        self._block_size = block_size
        self._seed = seed
        self._block = lru_cache(maxsize=_CACHED_BLOCKS)(self._make_block)

    def tokens(self, record: TraceRecord) -> list[int]:
        """The record's prompt: ``input_length`` ids. O(tokens)."""
        tokens: list[int] = []
        for hash_id in record.hash_ids:
            tokens += self._block(hash_id)
        return tokens[: record.input_length]

    def block(self, hash_id: int) -> list[int]:
        """The whole block of one id: ``block_size`` ids."""
        return list(self._block(hash_id))

    def _make_block(self, hash_id: int) -> tuple[int, ...]:
        words, size = self._vocabulary, len(self._vocabulary)
        digits: list[int] = []
        rest = hash_id
        for _ in range(self._num_digits):
            rest, digit = divmod(rest, size)
            digits.append(words[digit])
        noise = array("H")
        noise.frombytes(_noise(self._seed, hash_id, self._block_size - len(digits)))
        return (*digits, *(words[value % size] for value in noise))


def _noise(seed: int, hash_id: int, num_words: int) -> bytes:
    return shake_128(f"{seed}:{hash_id}".encode()).digest(2 * num_words)


def _num_digits(base: int) -> int:
    if base < 2:
        raise ValueError("a vocabulary has at least two words")
    num_digits, reach = 1, base
    while reach < 1 << _MAX_ID_BITS:
        num_digits, reach = num_digits + 1, reach * base
    return num_digits
