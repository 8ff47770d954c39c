"""Taking back what was predicted of a request that came to nothing."""

from bisect import bisect_left
from collections.abc import Iterable

from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims


def withdraw(claims: RankClaims, blocks: PromptBlocks, under_way: Iterable[PromptBlocks]) -> None:
    """The rank will not compute the prompt: predict only those of its blocks that others bring.

    O(blocks + prompts under way × log blocks).

    Args:
        under_way: prompts whose blocks stay predicted.
    """
    kept = max((_num_shared(blocks, other) for other in under_way), default=0)
    refs, _ = claims.look(blocks)
    claims.predicted.unmark(refs[kept:])
    claims.index.drop_unused()


def _num_shared(blocks: PromptBlocks, other: PromptBlocks) -> int:
    """How many leading blocks two prompts share; after the first key that differs all do."""
    if blocks.key_space != other.key_space:
        return 0
    keys, others = blocks.keys, other.keys
    length = min(len(keys), len(others))
    return bisect_left(range(length), 1, key=lambda i: keys[i] != others[i])
