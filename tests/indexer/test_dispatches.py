"""What other requests may have brought to a rank."""

import pytest

from indexer.block_index import BlockIndex
from indexer.dispatches import Dispatches
from indexer.limits import IndexLimits
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims
from protocol import KeySpace, block_keys, pack_tokens


def prompt_blocks(path: str, salt: str | None = None) -> PromptBlocks:
    """One block of two tokens a letter."""
    tokens = pack_tokens([ord(letter) + i for letter in path for i in range(2)])
    return PromptBlocks(KeySpace("m", salt=salt, block_size=2), block_keys(tokens, 2), tokens)


def dispatches(*others: tuple[str, float]) -> Dispatches:
    found = Dispatches(RankClaims(BlockIndex(), IndexLimits()))
    for path, at in others:
        found.dispatch(prompt_blocks(path), at)
    return found


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], 0),
        ([("abcd", 9.0)], 4),  # the same prompt, somebody else's
        ([("abxy", 9.0)], 2),
        ([("xbcd", 9.0)], 0),
        ([("ab", 9.0)], 4),  # a turn before: its answer may be the rest
        ([("abcdef", 9.0)], 4),
        ([("abx", 9.0), ("ax", 9.5)], 2),
        ([("abxy", 4.0)], 0),  # too long ago
        ([("", 9.0)], 0),
    ],
)
def test_brought(others: list[tuple[str, float]], expected: int) -> None:
    found = dispatches(*others, ("abcd", 10.0))
    assert found.brought(prompt_blocks("abcd"), decided_at=10.0, since=5.0) == expected
    found.check()


def test_other_namespaces_bring_nothing() -> None:
    found = dispatches(("abcd", 10.0))
    found.dispatch(prompt_blocks("abcd", salt="s"), 9.0)
    assert found.brought(prompt_blocks("abcd"), 10.0, 5.0) == 0


def test_a_long_request_is_active_until_it_was_last_heard_of() -> None:
    found = dispatches(("abxy", 1.0), ("abcd", 10.0))
    assert found.brought(prompt_blocks("abcd"), 10.0, 5.0) == 0
    found.touch(prompt_blocks("abxy"), 9.0)
    assert found.brought(prompt_blocks("abcd"), 10.0, 5.0) == 2


def test_the_memory_is_bounded() -> None:
    found = dispatches(*((f"a{chr(i)}", float(i)) for i in range(33, 133)))
    assert len(found) == 64
    found.dispatch(prompt_blocks("long" * 16_384), 200.0)
    found.check()
    assert len(found) == 1
    found.clear()
    assert len(found) == 0
