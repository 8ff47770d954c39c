"""The order in which nodes yield: a set of candidates kept sorted, lowest rank first."""

from collections.abc import Callable, Collection, Iterator

from sortedcontainers import SortedDict

from worker.tree.config import EvictionPolicy
from worker.tree.node import Node

Rank = tuple[int, ...]

POLICY_RANKS: dict[EvictionPolicy, Callable[[Node], Rank]] = {
    EvictionPolicy.LRU: lambda node: (node.last_access,),
    EvictionPolicy.LFU: lambda node: (node.hit_count, node.last_access),
    EvictionPolicy.FIFO: lambda node: (node.created,),
    EvictionPolicy.MRU: lambda node: (-node.last_access,),
    EvictionPolicy.FILO: lambda node: (-node.created,),
    EvictionPolicy.PRIORITY: lambda node: (node.priority, node.last_access),
}


class VictimOrder:
    """Membership and place are brought up to date at every change of a node, so that the next victim
    is found in O(log n) without a walk. Equal ranks go by age of the node."""

    def __init__(self, rank: Callable[[Node], Rank]) -> None:
        self._rank = rank
        self._order: SortedDict[Rank, Node] = SortedDict()
        self._ranks: dict[Node, Rank] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(self._order.values())

    def __len__(self) -> int:
        return len(self._order)

    def refresh(self, node: Node, *, is_member: bool) -> None:
        """Bring membership and place of a node up to date. O(log n)."""
        old = self._ranks.get(node)
        new = (*self._rank(node), node.serial) if is_member else None
        if old == new:
            return
        if old is not None:
            del self._order[old]
            del self._ranks[node]
        if new is not None:
            self._order[new] = node
            self._ranks[node] = new

    def first(self, passed_over: Collection[Node] = ()) -> Node | None:
        """The next victim that is not passed over. O(log n + passed over)."""
        return next((node for node in self if node not in passed_over), None)

    def check(self, members: Collection[Node]) -> None:
        """Verify that exactly ``members`` are here, each at its present rank."""
        assert set(self._ranks) == set(members), "candidates differ from what a walk gives"
        for node, rank in self._ranks.items():
            assert rank == (*self._rank(node), node.serial), f"stale rank {rank}"
            assert self._order.get(rank) is node, f"rank {rank} leads elsewhere"
        assert len(self._order) == len(self._ranks), "ranks without a node"
