"""Copies from device to host that take time: issued, in flight, acknowledged in order.

Issuing takes host slots and pins the device copy; the host copy is readable, and announced, when the
copy is acknowledged. A node's ancestors are copied before it, so that what is on host is a prefix.
"""

from collections.abc import Sequence

from worker.tree.config import WritePolicy
from worker.tree.node import HostState, Node
from worker.tree.page_hash import Page, run_of
from worker.tree.pressure import Pressure
from worker.tree.residence import Residence
from worker.tree.results import AckedBackup, Backup, StoragePage, TreeCounters
from worker.tree.structure import Structure
from worker.tree.tier import CopyTier


class BackupQueue:
    """Copies in flight, oldest first; bounded by the host pool, from which each takes its slots."""

    def __init__(
        self,
        structure: Structure,
        residence: Residence,
        pressure: Pressure,
        counters: TreeCounters,
    ) -> None:
        self._structure = structure
        self._residence = residence
        self._pressure = pressure
        self._counters = counters
        self._queue: dict[int, Backup] = {}
        config = structure.config
        writes_back = config.write_policy is WritePolicy.WRITE_BACK
        self._counts_nothing = config.has_host_tier and writes_back

    def count_hit(self, node: Node) -> bool:
        """A request's tokens cover the node: one hit more, and a copy once it has enough of them.

        Under write_back nothing is counted.

        Returns:
            Whether it has enough of them and host only stages: its pages are to be written to storage.
        """
        if self._counts_nothing:
            return False
        node.hit_count += 1
        self._structure.victims.refresh(node)
        config = self._structure.config
        threshold = config.backup_threshold
        if threshold is None or node.hit_count < threshold or node.is_backed:
            return False
        if config.has_host_tier:
            self.issue(node)
        return not config.has_host_tier

    def issue(self, node: Node) -> int:
        """Start the copies of a node and, where host keeps prefixes, of its ancestors without one, top
        down.

        Returns:
            Tokens of ``node`` on their way; 0 where it has a copy, or host has no room for it or an
            ancestor.
        """
        config = self._structure.config
        if not config.has_host_tier or node.is_backed:
            return 0
        bare = [node]
        if config.write_policy is not WritePolicy.WRITE_BACK:
            bare = [ancestor for ancestor in node.path() if not ancestor.is_backed]
        for ancestor in reversed(bare):
            if not self._issue_one(ancestor):
                return 0
        return self._structure.num_tokens(node)

    def pending(self) -> list[Backup]:
        """Copies in flight, oldest first."""
        return list(self._queue.values())

    def acknowledge(self, backup: Backup) -> AckedBackup:
        """The oldest copy is complete."""
        if next(iter(self._queue.values()), None) != backup:
            raise ValueError("not the oldest copy in flight")
        del self._queue[backup.id]
        nodes = self._structure.end_copy(backup.id)
        for node in nodes:
            self._residence.arrive(node, CopyTier.HOST)
        self._structure.unlock(nodes[-1])
        self._counters.backed_up += backup.num_tokens
        digests = [digest for node in nodes for digest in node.storage_digests]
        pages = [page for node in nodes for page in node.pages]
        is_eagle = self._structure.config.is_eagle
        return AckedBackup(
            backup.num_tokens, tuple(storage_pages(digests, pages, is_eagle=is_eagle))
        )

    def _issue_one(self, node: Node) -> bool:
        size = self._structure.num_tokens(node)
        if not self._pressure.take_host(size):
            self._counters.backups_refused += size
            return False
        node.host = HostState.IN_FLIGHT
        backup = Backup(self._structure.begin_copy([node]), size)
        self._structure.lock(node)
        self._queue[backup.id] = backup
        return True


def storage_pages(
    digests: Sequence[bytes], pages: Sequence[Page], *, is_eagle: bool
) -> list[StoragePage]:
    """Pages as storage knows them: key and token ids. O(tokens)."""
    if not pages:
        return []
    run = run_of(pages, is_eagle=is_eagle)
    size, tail = len(run) // len(pages), int(is_eagle)
    return [
        StoragePage(digest, tuple(run[index * size : (index + 1) * size + tail]))
        for index, digest in enumerate(digests)
    ]
