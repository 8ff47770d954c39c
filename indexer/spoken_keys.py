"""Whether a store says all that its blocks are known by: their tokens, and the extra keys that the engine uses.

Offload events may lack tokens, or the extra keys (salt, images) that the engine's GPU events carry. Before the
first of those it is not known whether the engine has such keys: then an event is taken at its word as long as
no salt has been seen anywhere in the fleet.
"""

from indexer.block_index import BlockIndex
from protocol import BlockStored, Tier


class SpokenKeys:
    """Of one rank. All operations O(1).

    Args:
        may_leave_salts_out: the engine's offload events may lack salts that its GPU events carry.

    Attributes:
        has_extra: some store named extra keys.
    """

    __slots__ = ("_index", "_may_leave_salts_out", "has_extra")

    def __init__(self, index: BlockIndex, *, may_leave_salts_out: bool) -> None:
        self._index = index
        self._may_leave_salts_out = may_leave_salts_out
        self.has_extra = False

    def note(self, event: BlockStored) -> None:
        """The rank stored something."""
        if event.extra_keys is not None:
            self.has_extra = True

    def lacks_identity(self, event: BlockStored, tier: Tier) -> bool:
        """Whether it is left open which blocks the event stored on the tier."""
        if not event.token_ids:
            return True
        if tier is Tier.GPU or event.extra_keys is not None:
            return False
        return self.has_extra or (self._may_leave_salts_out and self._index.has_salts)
