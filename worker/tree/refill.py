"""Storage refill: pages fetched into host memory join the tree below an anchor.

on host already               their slots are given back
on the device only            refilled too; under write_back skipped
unknown                       a new host-only node
nothing can chain to it       dropped: the anchor is gone, or has no host copy where the policy keeps
                              host a prefix
"""

from collections.abc import Sequence

from worker.tree.config import WritePolicy
from worker.tree.node import Node
from worker.tree.page_hash import Namespace, Page
from worker.tree.residence import Residence
from worker.tree.results import InsertHostResult, TreeCounters
from worker.tree.structure import Structure
from worker.tree.tier import CopyTier

_DROPPED = InsertHostResult(prefix_tokens=0, inserted_tokens=0, is_dropped=True, node=None)


class Refill:
    """Puts refilled pages into one tree; their host slots are taken beforehand."""

    def __init__(self, structure: Structure, residence: Residence, counters: TreeCounters) -> None:
        self._structure = structure
        self._residence = residence
        self._counters = counters
        self._skips_device_only = structure.config.write_policy is WritePolicy.WRITE_BACK

    def insert(
        self, anchor: Node, namespace: Namespace, pages: list[Page], digests: Sequence[bytes] | None
    ) -> InsertHostResult:
        """Refill ``pages`` below ``anchor``. O(pages)."""
        if anchor.is_dead or not (anchor.is_backed or self._skips_device_only):
            self._counters.refills_dropped += 1
            return _DROPPED
        if not anchor.is_root:
            self._structure.touch(anchor)
        size = self._structure.config.page_size
        node, at, refilled = anchor, 0, 0
        for node in self._structure.walk(anchor, namespace, pages):
            self._structure.touch(node)
            at += len(node.pages)
            if not node.is_backed and not self._skips_device_only:
                self._residence.arrive(node, CopyTier.HOST, is_refill=True)
                refilled += len(node.pages)
        prefix = at - refilled
        if at < len(pages):
            rest = None if digests is None else list(digests[at:])
            priority = node.priority
            node = self._structure.attach(node, namespace, pages[at:], rest)
            node.priority = priority
            self._residence.arrive(node, CopyTier.HOST, is_refill=True)
            refilled += len(node.pages)
        self._counters.refilled += refilled * size
        return InsertHostResult(prefix * size, refilled * size, is_dropped=False, node=node)
