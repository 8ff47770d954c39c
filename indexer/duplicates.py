"""Stores of what is held already: the engine may have two copies, or say the same thing twice.

They confirm what is in doubt, and they explain what comes later: a removal from HOST of a hash that is no
longer held, a hit on a block whose first copy was removed.
"""

from collections.abc import Sequence

from indexer.block_index import KEY_MASK, Ref
from indexer.host_history import HostHistory
from indexer.rank_claims import RankClaims
from indexer.remembered import Remembered
from protocol import EngineHash, Tier


class Duplicates:
    """Of one cache group; counted by tier in ``RankClaims.duplicates``.

    Attributes:
        doubled: keys of blocks stored again on GPU or HOST while held there: the engine may have two
            copies, so the first removal may leave one behind. With each the number of duplicates on GPU
            so far when it last was one there, 0 if it never was.
    """

    __slots__ = ("_claims", "_history", "doubled")

    def __init__(self, claims: RankClaims, history: HostHistory, limit: int) -> None:
        self._claims = claims
        self._history = history
        self.doubled: Remembered[int, int] = Remembered(limit, claims.index.share)

    def note(self, tier: Tier, again: Sequence[tuple[EngineHash, Ref]]) -> None:
        """These hashes were stored again, and name these blocks. O(blocks)."""
        self._claims.duplicates[tier] += len(again)
        num_again = self._claims.duplicates[tier]
        if self._claims.doubtful[tier]:
            self._claims.confirm(tier, [ref for _, ref in again])
        if tier is Tier.HOST:
            self._history.add([block_hash for block_hash, _ in again])
        if tier is not Tier.STORAGE:
            for _, ref in again:
                key = ref & KEY_MASK
                on_gpu = tier is Tier.GPU
                self.doubled.add(key, num_again if on_gpu else self.doubled.get(key) or 0)

    def note_unnamed(self, tier: Tier, block_hash: EngineHash) -> None:
        """A hash that names no block was stored again."""
        self._claims.duplicates[tier] += 1
        if tier is Tier.HOST:
            self._history.add([block_hash])
