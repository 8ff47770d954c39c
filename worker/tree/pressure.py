"""Slots under pressure: taking them from a pool, and evicting in the policy's order when it is short.

device leaf with host copy        demoted: the device copy leaves
device leaf without, write_back   copied to host, then demoted; with no room there, dropped with
                                  all that hangs below it on host
device leaf without, otherwise    dropped
host leaf                         dropped
host copy of a device node        dropped first, under write_back only: it leaves a tier hole
"""

from worker.tree.config import TreeConfig, WritePolicy
from worker.tree.node import HostState, Node
from worker.tree.pool import TokenPool
from worker.tree.residence import Residence
from worker.tree.results import TreeCounters
from worker.tree.structure import Structure
from worker.tree.tier import CopyTier
from worker.tree.victims import Victims


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
        self._victims: Victims = structure.victims
        self._config: TreeConfig = structure.config
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

    def _drop_copy(self, node: Node) -> int:
        size = self._structure.num_tokens(node)
        self._residence.leave(node, CopyTier.HOST)
        self._counters.host_evicted += size
        return size

    def evict_leaf(self, leaf: Node) -> bool:
        """Demote or drop one device leaf; False if it declines."""
        size = self._structure.num_tokens(leaf)
        if leaf.host is HostState.READABLE or self._write_back(leaf):
            self._residence.leave(leaf, CopyTier.DEVICE)
            self._counters.demoted += size
            return True
        if not self._drop_below(leaf):
            return False
        self._residence.leave(leaf, CopyTier.DEVICE)
        self._structure.detach(leaf)
        self._counters.evicted += size
        return True

    def _write_back(self, leaf: Node) -> bool:
        """Copy a leaf to host at once, where the policy does so and host has room."""
        if (
            not self._config.has_host_tier
            or self._config.write_policy is not WritePolicy.WRITE_BACK
        ):
            return False
        if not self.take_host(self._structure.num_tokens(leaf)):
            return False
        self._residence.arrive(leaf, CopyTier.HOST)
        self._counters.backed_up += self._structure.num_tokens(leaf)
        return True

    def _drop_below(self, node: Node) -> bool:
        """Drop what hangs below a node on host, children first; False, with nothing done, if any of it
        is locked."""
        below = list(_descendants(node))
        if any(child.host_locks or child.device_locks for child in below):
            return False
        for child in reversed(below):
            self._drop_host_leaf(child)
        return True

    def _drop_host_leaf(self, leaf: Node) -> None:
        self._residence.leave(leaf, CopyTier.HOST)
        self._structure.detach(leaf)
        self._counters.host_evicted += self._structure.num_tokens(leaf)


def _descendants(node: Node) -> list[Node]:
    """All nodes below, parents first."""
    found = list(node.children.values())
    for child in found:
        found.extend(child.children.values())
    return found
