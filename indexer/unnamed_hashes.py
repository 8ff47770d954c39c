"""Hashes that a cache group holds and that name no block yet, for whatever reason.

Some of them will never name one (*unkeyable*). Some are older than a loss (*doubtful*): they are kept until
a time, and when they come to name a block, the claim is doubtful until then.
"""

import math
from collections.abc import Iterable, Mapping

from indexer.block_index import Ref
from protocol import EngineHash, Tier

Tiers = Mapping[Tier, Mapping[EngineHash, Ref | None]]
"""What is held, by tier."""


class UnnamedHashes:
    """Of one cache group; as many as it holds.

    Attributes:
        hashes: all of them.
        unkeyable: those that cannot be identified.
    """

    __slots__ = ("_doubtful", "hashes", "unkeyable")

    def __init__(self) -> None:
        self.hashes: set[EngineHash] = set()
        self.unkeyable: set[EngineHash] = set()
        # until when they are kept, the first to go first
        self._doubtful: dict[Tier, dict[EngineHash, float]] = {tier: {} for tier in Tier}

    def add(self, block_hash: EngineHash) -> None:
        """It is held."""
        self.hashes.add(block_hash)

    def note_unkeyable(self, hashes: Iterable[EngineHash]) -> None:
        """Those of the hashes that are unnamed cannot be identified."""
        self.unkeyable |= self.hashes.intersection(hashes)

    def drop(self, block_hash: EngineHash) -> None:
        """It names a block from here on, or is held nowhere."""
        self.hashes.discard(block_hash)
        self.unkeyable.discard(block_hash)

    def doubt(self, tiers: Tiers, until: float) -> None:
        """What is held is older than a loss; what was doubtful before keeps its time. O(unnamed)."""
        for tier, held in tiers.items():
            for block_hash in self.hashes:
                if block_hash in held:
                    self._doubtful[tier].setdefault(block_hash, until)

    def confirm(self, tier: Tier, block_hash: EngineHash) -> float | None:
        """It was stored again, has left, or names a block: until when it was doubtful; None if it was not."""
        return self._doubtful[tier].pop(block_hash, None)

    def has_overdue(self, tier: Tier, now: float) -> bool:
        """Whether the time of one is over."""
        doubtful = self._doubtful[tier]
        return bool(doubtful) and next(iter(doubtful.values())) <= now

    def is_overdue(self, tier: Tier, block_hash: EngineHash, now: float) -> bool:
        """Whether the hash is doubtful on the tier and its time is over."""
        return self._doubtful[tier].get(block_hash, math.inf) <= now

    def clear(self, tier: Tier, tiers: Tiers) -> None:
        """Nothing is held on the tier any more; what is held elsewhere stays. O(unnamed)."""
        self._doubtful[tier].clear()
        self.hashes = {h for h in self.hashes if any(h in held for held in tiers.values())}
        self.unkeyable &= self.hashes

    def give_up(self) -> None:
        """Nothing is held on any tier; O(1)."""
        self.hashes, self.unkeyable = set(), set()
        self._doubtful = {tier: {} for tier in Tier}

    def check(self, tiers: Tiers) -> None:
        """Verify that exactly the hashes held without a block are here. O(blocks held)."""
        unnamed = {h for held in tiers.values() for h, ref in held.items() if ref is None}
        named = {h for held in tiers.values() for h, ref in held.items() if ref is not None}
        assert self.hashes == unnamed, f"unnamed: {self.hashes ^ unnamed}"
        assert self.unkeyable <= unnamed, f"unkeyable, not held: {self.unkeyable - unnamed}"
        for tier, doubtful in self._doubtful.items():
            assert all(tiers[tier].get(h, h) is None for h in doubtful), "doubtful, and named"
        assert not unnamed & named, f"named on one tier only: {unnamed & named}"
