"""When blocks left a tier, as far back as is remembered.

Two generations, as in ``Remembered``; but what is forgotten leaves its time behind, so that a question
about the past is never answered from a memory that no longer reaches there. Blocks leave all the time
and hardly anybody asks, so they are kept as they came and sorted at the first question.

Blocks are remembered by key alone, since a ref does not outlive the last holder in its key space. So the
same tokens in another namespace count as the same block, and explain more than they should.
"""

import math
from collections.abc import Sequence

from indexer.block_index import KEY_MASK, Ref
from indexer.fleet_share import UNSHARED, FleetShare


class Departures:
    """Blocks that left some tier of one rank. At least the last ones within a share of ``limit`` are
    remembered, give or take one batch, and at most twice as many."""

    __slots__ = ("_forgotten_at", "_limit", "_old", "_old_until", "_share", "_young")

    def __init__(self, limit: int, share: FleetShare = UNSHARED) -> None:
        self._limit = limit
        self._share = share
        self._young = _Generation()
        self._old = _Generation()
        self._old_until = -math.inf
        self._forgotten_at = -math.inf

    def __len__(self) -> int:
        return self._young.num_blocks + self._old.num_blocks

    def note(self, refs: Sequence[Ref], now: float) -> None:
        """These left the tier. O(1); the sequence is kept."""
        young = self._young
        young.batches.append((now, refs))
        young.num_blocks += len(refs)
        if young.num_blocks > self._share.of(self._limit):
            self._turn(now)

    def settle(self, now: float) -> None:
        """Come down to a share that has shrunk, with the second call at the latest; O(1)."""
        limit = self._share.of(self._limit)
        if self._young.num_blocks > limit or self._old.num_blocks > 2 * limit:
            self._turn(now)

    def forget(self, now: float) -> None:
        """Everything left, or may have: nothing is known of the time up to ``now``."""
        self._young, self._old = _Generation(), _Generation()
        self._forgotten_at = self._old_until = now

    def has_left(self, ref: Ref, since: float) -> bool:
        """Whether the block is known to have left at that time or later. O(departures since asked)."""
        key = ref & KEY_MASK
        return self._young.left_at(key) >= since or self._old.left_at(key) >= since

    def may_have_left(self, ref: Ref, since: float) -> bool:
        """Whether the block left at that time or later, as far as is known."""
        return since <= self._forgotten_at or self.has_left(ref, since)

    def _turn(self, now: float) -> None:
        self._forgotten_at, self._old_until = self._old_until, now
        self._old, self._young = self._young, _Generation()

    def check(self) -> None:
        """Verify the bound and the order of times."""
        assert self._young.num_blocks <= self._limit
        assert self._forgotten_at <= self._old_until
        assert all(at <= self._old_until for at, _ in self._old.batches)
        for generation in (self._young, self._old):
            assert generation.num_blocks == sum(len(refs) for _, refs in generation.batches)


class _Generation:
    """Batches as they came; those up to ``_num_sorted`` are in the dictionary."""

    __slots__ = ("_last", "_num_sorted", "batches", "num_blocks")

    def __init__(self) -> None:
        self.batches: list[tuple[float, Sequence[Ref]]] = []
        self.num_blocks = 0
        self._num_sorted = 0
        self._last: dict[int, float] = {}

    def left_at(self, key: int) -> float:
        """When the block last left; before all time if it did not."""
        if self._num_sorted < len(self.batches):
            for at, refs in self.batches[self._num_sorted :]:
                self._last.update({ref & KEY_MASK: at for ref in refs})
            self._num_sorted = len(self.batches)
        return self._last.get(key, -math.inf)
