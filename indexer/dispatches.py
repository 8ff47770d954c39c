"""Which prompts were lately sent to one rank: what they bring needs no other explanation.

Two uses. Blocks of a dispatched prompt are predicted until they are heard of or time out, so that a burst
neither scatters nor herds. And when an engine reports a hit that no claim explains, another request with
the same beginning may have brought those blocks in the meantime.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from indexer.block_index import HELD
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims
from protocol import BlockKey, KeySpace

_MAX_PROMPTS = 64
_MAX_BLOCKS = 65_536


@dataclass(slots=True)
class Dispatch:
    """One prompt sent to the rank; ``active_at`` is when it was last heard of."""

    key_space: KeySpace
    keys: Sequence[BlockKey]
    dispatched_at: float
    active_at: float

    def is_for(self, blocks: PromptBlocks) -> bool:
        """Whether it is a dispatch of these very blocks."""
        return (
            self.key_space == blocks.key_space
            and len(self.keys) == len(blocks.keys)
            and self.keys[-1:] == blocks.keys[-1:]
        )


class Dispatches:
    """The last 64 prompts of one rank, at most 65,536 blocks in all; the oldest go first."""

    def __init__(self, claims: RankClaims) -> None:
        self._claims = claims
        self._recent: deque[Dispatch] = deque()
        self._num_blocks = 0

    def __len__(self) -> int:
        return len(self._recent)

    def dispatch(self, blocks: PromptBlocks, now: float) -> None:
        """Predict every block that the rank does not hold. O(blocks)."""
        if not blocks.keys:
            return
        refs, bits = self._claims.look(blocks)
        missing = [ref for ref, held in zip(refs, bits, strict=True) if not held & HELD]
        self._claims.predicted.mark(missing, now)
        self._claims.index.drop_unused()
        self._recent.append(Dispatch(blocks.key_space, blocks.keys, now, now))
        self._num_blocks += len(blocks.keys)
        while len(self._recent) > _MAX_PROMPTS or self._num_blocks > _MAX_BLOCKS:
            self._num_blocks -= len(self._recent.popleft().keys)

    def touch(self, blocks: PromptBlocks, now: float) -> None:
        """The engine worked on this prompt until now: the last dispatch of it was active."""
        for dispatch in reversed(self._recent):
            if dispatch.is_for(blocks):
                dispatch.active_at = now
                return

    def brought(self, blocks: PromptBlocks, decided_at: float, since: float) -> int:
        """Leading blocks that requests other than this one may have brought.

        A request whose whole prompt begins this one may have brought what follows, too: its answer.

        Args:
            decided_at: when this request was dispatched, to tell it from others with the same prompt.
            since: requests that were not active after this time brought nothing that is unheard of.
        """
        own = self._own(blocks, decided_at)
        longest = 0
        for dispatch in self._recent:
            if dispatch is own or dispatch.active_at < since:
                continue
            if dispatch.key_space != blocks.key_space:
                continue
            shared = _common_prefix(dispatch.keys, blocks.keys)
            longest = max(longest, len(blocks.keys) if shared == len(dispatch.keys) else shared)
        return longest

    def clear(self) -> None:
        """Forget everything."""
        self._recent.clear()
        self._num_blocks = 0

    def check(self) -> None:
        """Verify the bounds."""
        assert self._num_blocks == sum(len(dispatch.keys) for dispatch in self._recent)
        assert len(self._recent) <= _MAX_PROMPTS
        assert self._num_blocks <= _MAX_BLOCKS

    def _own(self, blocks: PromptBlocks, decided_at: float) -> Dispatch | None:
        same = [dispatch for dispatch in self._recent if dispatch.is_for(blocks)]
        return min(same, key=lambda same: abs(same.dispatched_at - decided_at), default=None)


def _common_prefix(keys: Sequence[BlockKey], others: Sequence[BlockKey]) -> int:
    """Length of the common prefix; O(log blocks), for equal keys have equal predecessors."""
    low, high = 0, min(len(keys), len(others))
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle - 1] == others[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
