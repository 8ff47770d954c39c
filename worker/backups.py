"""Copies from device to host in flight: one link, in order, acknowledged at a scheduler round.

The tree issues copies; this queue gives each the time at which it is complete. An acknowledged copy
is readable on host and announced by the tree, then its pages are written to storage, silently.
"""

from collections import deque

from protocol import EngineModel
from worker.storage import Storage
from worker.tree import Backup, TreeCore


class BackupQueue:
    """The copies of one rank, bounded by the host pool that their slots come from."""

    def __init__(self, tree: TreeCore, storage: Storage | None, model: EngineModel) -> None:
        self._tree = tree
        self._storage = storage
        self._model = model
        self._in_flight: deque[tuple[Backup, float]] = deque()
        self._link_free_at = 0.0
        self.stored_tokens = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    def note(self, now: float) -> None:
        """Take up the copies that the tree has issued since the last call.

        The link to host is as fast as the one back, so the load-back rate serves for both.
        """
        for backup in self._tree.pending_backups()[len(self._in_flight) :]:
            start = max(now, self._link_free_at)
            self._link_free_at = start + self._model.load_back_s(backup.num_tokens)
            self._in_flight.append((backup, self._link_free_at))

    def next_due(self) -> float | None:
        """Engine time at which the oldest copy is complete."""
        return self._in_flight[0][1] if self._in_flight else None

    def acknowledge_due(self, now: float) -> bool:
        """Acknowledge every copy that is complete; whether there was one."""
        num_acknowledged = 0
        while self._in_flight and self._in_flight[0][1] <= now:
            backup, _ = self._in_flight.popleft()
            pages = self._tree.acknowledge(backup).pages
            num_acknowledged += 1
            if self._storage is not None and pages:
                self.stored_tokens += self._storage.put(pages) * self._tree.config.page_size
        return num_acknowledged > 0

    def clear(self) -> None:
        """Forget all, after the tree has."""
        self._in_flight.clear()

    def check(self) -> None:
        """Verify that every copy of the tree is here, in its order."""
        ours = [backup.id for backup, _ in self._in_flight]
        theirs = [backup.id for backup in self._tree.pending_backups()]
        assert ours == theirs, f"copies in flight: {ours} here, {theirs} in the tree"
