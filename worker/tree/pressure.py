"""Slots under pressure: taking them from a pool, and evicting in the policy's order when it is short.

Who yields, and how:

    device leaf with host copy        demoted: the device copy leaves
    device leaf without, write_back   copied to host and demoted; host makes room at the cost of what
                                      hangs below; dropped where that is not enough
    device leaf without, otherwise    dropped; declines while a prefetch is anchored there
    host leaf                         dropped
    host copy of a device node        dropped first, under write_back only: it leaves a tier hole
"""

from worker.tree.config import WritePolicy
from worker.tree.node import HostState, Node
from worker.tree.pool import TokenPool
from worker.tree.residence import Residence
from worker.tree.results import TreeCounters
from worker.tree.structure import Structure
from worker.tree.tier import CopyTier


class Pressure:
    """Device and host pool of one tree, and who yields."""

    def __init__(
        self,
        structure: Structure,
        residence: Residence,
        pools: dict[CopyTier, TokenPool],
        counters: TreeCounters,
    ) -> None:
        self._structure = structure
        self._residence = residence
        self._victims = structure.victims
        config = structure.config
        self._writes_back = config.has_host_tier and config.write_policy is WritePolicy.WRITE_BACK
        self._device = pools[CopyTier.DEVICE]
        self._host = pools.get(CopyTier.HOST)
        self._counters = counters

    def take_device(self, num_tokens: int) -> bool:
        """Take device slots, evicting what is short; False, with none taken, if that is not enough."""
        if num_tokens > self._device.free:
            self.evict_device(num_tokens - self._device.free)
        return self._device.take(num_tokens)

    def give_device(self, num_tokens: int) -> None:
        """Give back device slots that hold nothing."""
        self._device.give(num_tokens)

    def take_host(self, num_tokens: int) -> bool:
        """Take host slots, evicting what is short; False, with none taken, if that is not enough."""
        if self._host is None:
            return False
        if num_tokens > self._host.free:
            self.evict_host(num_tokens - self._host.free)
        return self._host.take(num_tokens)

    def evict_device(self, num_tokens: int) -> int:
        """Free device slots until ``num_tokens`` are freed or no leaf yields; returns slots freed."""
        freed = 0
        declined: set[Node] = set()
        while freed < num_tokens:
            leaf = self._victims.device_leaves.first(declined)
            if leaf is None:
                break
            if self.evict_leaf(leaf):
                freed += self._structure.num_tokens(leaf)
            else:
                declined.add(leaf)
        return freed

    def evict_host(self, num_tokens: int) -> int:
        """Free host slots until ``num_tokens`` are freed or nothing yields; returns slots freed."""
        freed = 0
        if self._victims.duplicates is not None:
            freed = self._victims.duplicates.reclaim(num_tokens, self._drop_copy)
        while freed < num_tokens:
            leaf = self._victims.host_leaves.first()
            if leaf is None:
                break
            self._drop_host_leaf(leaf)
            freed += self._structure.num_tokens(leaf)
        return freed

    def evict_leaf(self, leaf: Node) -> bool:
        """Demote or drop one device leaf; False if it declines."""
        size = self._structure.num_tokens(leaf)
        if leaf.host is HostState.READABLE or self._write_back(leaf):
            self._residence.leave(leaf, CopyTier.DEVICE)
            self._counters.demoted += size
            return True
        if leaf.children or leaf.host_locks:  # what is left below on host is pinned
            return False
        self._residence.leave(leaf, CopyTier.DEVICE)
        self._structure.detach(leaf)
        self._counters.evicted += size
        return True

    def _write_back(self, leaf: Node) -> bool:
        """Copy a leaf to host at once, where the policy does so and host has room."""
        size = self._structure.num_tokens(leaf)
        if not self._writes_back or not self.take_host(size):
            return False
        self._residence.arrive(leaf, CopyTier.HOST)
        self._counters.backed_up += size
        return True

    def _drop_copy(self, node: Node) -> int:
        size = self._structure.num_tokens(node)
        self._residence.leave(node, CopyTier.HOST)
        self._counters.host_evicted += size
        return size

    def _drop_host_leaf(self, leaf: Node) -> None:
        self._residence.leave(leaf, CopyTier.HOST)
        self._structure.detach(leaf)
        self._counters.host_evicted += self._structure.num_tokens(leaf)
