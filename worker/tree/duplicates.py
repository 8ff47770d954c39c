"""Host copies of device nodes, which host pressure takes back under write_back: oldest duplicate first.

Inner nodes yield before device leaves, whose host copy is about to become their only one. A node that
stops being a duplicate keeps its place until a reclaim passes it, and finds it again if it becomes one
anew before that.

    places   1   2   3   4   5          reclaim takes 2, then 4; it passed 1: that place is lost,
             f   i   l   i   f          5 is kept; 3 yields only when no inner node is left
             f = former, i = inner, l = leaf
"""

from collections.abc import Callable, Collection

from worker.tree.eviction import Rank, VictimOrder
from worker.tree.node import Node


class Duplicates:
    """All places of one tree. O(log n) per change; a reclaim is O((taken + places lost) log n)."""

    def __init__(self) -> None:
        self._inner = VictimOrder(_place)
        self._leaves = VictimOrder(_place)
        self._former = VictimOrder(_place)
        self._places = 0

    def refresh(self, node: Node) -> None:
        """Bring a node up to date after any change of it or of its children."""
        is_settled = node.has_both and node.copy_in_flight is None
        if is_settled and node.duplicate_since is None:
            self._places += 1
            node.duplicate_since = self._places
        is_candidate = not node.is_dead and node.is_duplicate
        is_former = not node.is_dead and not node.has_both and node.duplicate_since is not None
        self._inner.refresh(node, is_member=is_candidate and not node.is_device_leaf)
        self._leaves.refresh(node, is_member=is_candidate and node.is_device_leaf)
        self._former.refresh(node, is_member=is_former)

    def reclaim(self, num_tokens: int, take: Callable[[Node], int]) -> int:
        """Take copies back until ``num_tokens`` are freed or none is left; returns tokens freed.

        ``take`` frees one node's host copy and returns its size.
        """
        freed = self._take(self._inner, num_tokens, take)
        return freed + self._take(self._leaves, num_tokens - freed, take)

    def check(self, nodes: Collection[Node]) -> None:
        """Verify every order against all living nodes."""
        candidates = [node for node in nodes if node.is_duplicate]
        self._inner.check([node for node in candidates if not node.is_device_leaf])
        self._leaves.check([node for node in candidates if node.is_device_leaf])
        placed = [node for node in nodes if node.duplicate_since is not None]
        self._former.check([node for node in placed if not node.has_both])

    def _take(self, order: VictimOrder, num_tokens: int, take: Callable[[Node], int]) -> int:
        freed = 0
        while freed < num_tokens:
            node = order.first()
            self._forget_before(node)
            if node is None:
                break
            freed += take(node)
        return freed

    def _forget_before(self, node: Node | None) -> None:
        """Drop the places of former duplicates that the reclaim passes on its way to ``node``."""
        while (former := self._former.first()) is not None:
            if node is not None and _place(former) > _place(node):
                break
            former.duplicate_since = None
            self._former.refresh(former, is_member=False)


def _place(node: Node) -> Rank:
    return (node.duplicate_since or 0,)
