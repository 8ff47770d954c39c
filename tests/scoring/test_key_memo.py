"""Keys from a memo are those that hashing makes."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from prompt.prefix_table import CHUNK
from protocol import TokenBytes, block_keys
from scoring.key_memo import KeyMemo

TOKENS = random.Random(1).randbytes(6 * CHUNK)


def prompt(num_same: int, num_more: int, seed: int) -> TokenBytes:
    """So many tokens of one sequence, then some of another."""
    return TokenBytes(TOKENS[: 4 * num_same] + random.Random(seed).randbytes(4 * num_more))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(TOKENS) // 4),
            st.integers(0, 1500),
            st.integers(0, 2),
            st.sampled_from([1, 16, 64, 1000]),
            st.booleans(),
        ),
        max_size=6,
    ),
    st.sampled_from([0, 60_000, 1 << 30]),
)
def test_keys_are_those_of_hashing(
    asked: list[tuple[int, int, int, int, bool]], max_bytes: int
) -> None:
    memo = KeyMemo(max_bytes)
    for num_same, num_more, seed, block_size, is_eagle in asked:
        tokens = prompt(num_same, num_more, seed)
        expected = block_keys(tokens, block_size, is_eagle=is_eagle)
        for _ in range(2):
            hashed = memo.hashed(tokens, block_size, is_eagle=is_eagle)
            assert hashed.keys == list(hashed.packed) == expected
        memo.check()


def test_a_prompt_that_grows_token_by_token() -> None:
    memo = KeyMemo(1 << 20)
    for length in range(CHUNK // 4 - 5, CHUNK // 4 + 70):
        tokens = TokenBytes(TOKENS[: 4 * length])
        for is_eagle in (False, True):
            expected = block_keys(tokens, 16, is_eagle=is_eagle)
            hashed = memo.hashed(tokens, 16, is_eagle=is_eagle)
            assert hashed.keys == list(hashed.packed) == expected
    memo.check()
