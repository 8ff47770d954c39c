"""Insert: a request's whole pages join the tree, on the device.

on the device          the request's slots are duplicates and go back to the pool
on host only           recomputed: its slots become the device copy
unknown                one new leaf
"""

from dataclasses import dataclass

from worker.tree.backup import BackupQueue
from worker.tree.node import Node, child_key
from worker.tree.page_hash import Namespace, Page
from worker.tree.pressure import Pressure
from worker.tree.residence import Residence
from worker.tree.results import CacheKey, InsertResult, TreeCounters
from worker.tree.structure import Structure, common_pages
from worker.tree.tier import CopyTier
from worker.tree.window import SlidingWindow


@dataclass(frozen=True, slots=True)
class InsertLabels:
    """Who inserts: eviction priority, session named in the stores, and the leading tokens whose hits
    an earlier insert of the same request has counted."""

    priority: int = 0
    session_id: str | None = None
    counted_tokens: int = 0


class Growth:
    """Puts computed pages into one tree."""

    def __init__(
        self,
        structure: Structure,
        residence: Residence,
        pressure: Pressure,
        backups: BackupQueue,
        window: SlidingWindow,
        counters: TreeCounters,
    ) -> None:
        self._structure = structure
        self._residence = residence
        self._pressure = pressure
        self._backups = backups
        self._window = window
        self._counters = counters

    def insert(self, key: CacheKey, owned_tokens: int | None, labels: InsertLabels) -> InsertResult:
        """Cache the whole pages of ``key``; see ``TreeCore.insert``."""
        namespace, pages = self._structure.namespace_of(key), self._structure.pages_of(key)
        owned = self._cover(namespace, pages, owned_tokens)
        size = self._structure.config.page_size
        root = self._structure.root
        node, at, revived = root, 0, 0
        to_write: list[Node] = []
        for node in self._structure.walk(root, namespace, pages):
            self._structure.touch(node)
            node.priority = max(node.priority, labels.priority)
            at += len(node.pages)
            if not node.is_on_device:
                self._residence.arrive(node, CopyTier.DEVICE, session_id=labels.session_id)
                revived += len(node.pages)
            self._window.keep(node)
            if at * size > labels.counted_tokens and self._backups.count_hit(node):
                to_write.append(node)
        prefix = at
        if at < len(pages):
            node = self._structure.attach(node, namespace, pages[at:])
            node.priority = labels.priority
            self._residence.arrive(node, CopyTier.DEVICE, session_id=labels.session_id)
            if self._backups.count_hit(node):
                to_write.append(node)
            self._window.cap(node)
        self._window.refresh(node)
        used = (len(pages) - prefix + revived) * size
        self._pressure.give_device(owned - used)
        self._counters.inserted += (len(pages) - prefix) * size
        self._counters.revived += revived * size
        return InsertResult(prefix * size, used, owned - used, node, tuple(to_write))

    def _cover(self, namespace: Namespace, pages: list[Page], owned: int | None) -> int:
        """Slots for all pages that are not on the device, taken from the pool if nobody owns them.

        Taking may evict pages of the key itself, so it is repeated until nothing is missing.
        """
        missing = self._missing(namespace, pages)
        if owned is not None:
            if missing > owned:
                raise ValueError(f"{owned} slots owned, {missing} needed")
            return owned
        taken = 0
        while missing > taken:
            if not self._pressure.take_device(missing - taken):
                self._pressure.give_device(taken)
                raise ValueError("the device pool cannot hold the key")
            taken = missing
            missing = self._missing(namespace, pages)
        return taken

    def _missing(self, namespace: Namespace, pages: list[Page]) -> int:
        """Slots that the pages not on the device need. Changes nothing. O(pages)."""
        node: Node | None = self._structure.root
        at = missing = 0
        while node is not None and at < len(pages):
            node = node.children.get(child_key(namespace, pages[at]))
            common = len(pages) - at if node is None else common_pages(node.pages, pages, at)
            if node is None or not node.is_on_device:
                missing += common
            at += common
            if node is not None and common < len(node.pages):
                missing += len(pages) - at
                break
        return missing * self._structure.config.page_size
