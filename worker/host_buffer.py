"""The host pool as a staging buffer: what the cache of one rank does with storage where host keeps nothing.

Both directions share the pool, and what is believed to lie in storage. Nothing in it is ever readable or announced.
"""

from protocol import EngineModel
from worker.prefetch import PrefetchLimits
from worker.staged_reads import StagedReads
from worker.staged_writes import StagedWrites
from worker.storage import Storage
from worker.storage_belief import StorageBelief
from worker.tree import TreeCore


class HostBuffer:
    """Reads and writes of one rank."""

    def __init__(
        self, tree: TreeCore, storage: Storage, model: EngineModel, limits: PrefetchLimits
    ) -> None:
        self.belief = StorageBelief()
        self.reads = StagedReads(tree, storage, model, limits, self.belief)
        self.writes = StagedWrites(tree, storage, model, self.belief)

    @property
    def held_tokens(self) -> int:
        """Host slots in use."""
        return self.reads.held_tokens + self.writes.staged_tokens

    def note(self, now: float) -> None:
        """Start what there is room for, reads first."""
        self.reads.start(now)
        self.writes.launch(now)

    def settle(self, now: float) -> bool:
        """Complete what is due; whether slots may have become free by it."""
        has_read = self.reads.settle(now)
        return self.writes.settle(now) or has_read

    def next_due(self) -> float | None:
        """Engine time at which the next of them is due."""
        due = (self.reads.next_due(), self.writes.next_due())
        return min((time for time in due if time is not None), default=None)

    def clear(self) -> None:
        """Forget all, after the tree has; storage keeps what it has."""
        self.reads.clear()
        self.writes.clear()
        self.belief.clear()

    def check(self) -> None:
        """Verify both."""
        self.belief.check()
        self.reads.check()
        self.writes.check()
