"""Which block precedes a block, as served prompts tell it.

A rank that was joined late publishes children of blocks nobody announced to us. Their parent is an engine
hash without a meaning, until a served prompt shows the same tokens after a block that we know by key. A
block that follows two different ones says nothing.
"""

from collections import OrderedDict

from indexer.block_index import Ref


class ParentLinks:
    """Unchained hash of a block → the block before it, at most ``limit``; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parents: OrderedDict[int, Ref | None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._parents)

    def __len__(self) -> int:
        return len(self._parents)

    def add(self, local: int, parent: Ref) -> None:
        """A prompt has this block after ``parent``."""
        if local in self._parents:
            if self._parents[local] != parent:
                self._parents[local] = None
            return
        self._parents[local] = parent
        if len(self._parents) > self._limit:
            self._parents.popitem(last=False)

    def get(self, local: int) -> Ref | None:
        """The one block that precedes it; None where it is unknown or not one."""
        return self._parents.get(local)

    def clear(self) -> None:
        """Forget everything."""
        self._parents.clear()
