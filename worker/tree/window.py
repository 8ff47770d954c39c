"""Sliding-window component: which nodes still hold their window part, and how far a match may go.

Layers with a sliding window need only the last ``window`` tokens before a position, and keep them in a
pool of their own. Under pressure there an inner node becomes a tombstone: its full-attention pages
stay, and stay announced, but a prefix may end there only if a whole window before it is intact.

    window 4     [1 2 3 4] ── [5 6] ── [7 8 9 10]       [5 6] a tombstone: a match of all ten tokens
                                                        would need 7…10, a match of six 3…6
"""

from worker.tree.node import Node
from worker.tree.pressure import Pressure
from worker.tree.results import WindowEviction
from worker.tree.structure import Structure


class SlidingWindow:
    """Without a configured window, every method does nothing and every match is usable."""

    def __init__(self, structure: Structure, pressure: Pressure) -> None:
        self._structure = structure
        self._pressure = pressure
        self._window = structure.config.sliding_window

    def usable(self, path: list[Node]) -> int:
        """How many nodes of a path, from the root down, a match may include. O(nodes)."""
        if self._window is None:
            return len(path)
        usable = 0
        covered: float = float("inf")
        for index, node in enumerate(path, start=1):
            covered = covered + self._structure.num_tokens(node) if node.has_window else 0
            if covered >= self._window:
                usable = index
        return usable

    def keep(self, node: Node) -> None:
        """The window part of a device node was computed anew."""
        if self._window is not None and not node.has_window:
            node.has_window = True
            self._use(node)

    def cap(self, leaf: Node) -> None:
        """Give a new leaf its window part; one longer than a window is split, so that its tail can be
        kept alone."""
        if self._window is None:
            return
        tail = -(-self._window // self._structure.config.page_size)
        if len(leaf.pages) > tail:
            self.keep(self._structure.split(leaf, len(leaf.pages) - tail))
        self.keep(leaf)

    def refresh(self, node: Node) -> None:
        """A request ends here: the nodes in its window become the latest used ones."""
        if self._window is None:
            return
        reach = self._window + self._structure.config.page_size
        used = []
        for ancestor in node.path():
            used.append(ancestor)
            reach -= self._structure.num_tokens(ancestor)
            if reach <= 0:
                break
        for ancestor in reversed(used):
            if ancestor.has_window:
                self._use(ancestor)

    def evict(self, num_tokens: int) -> WindowEviction:
        """Free window slots, least recently used first."""
        device = window = 0
        while window < num_tokens:
            node = self._structure.victims.windows.first()
            if node is None:
                break
            size = self._structure.num_tokens(node)
            window += size
            if node.is_device_leaf and self._pressure.evict_leaf(node):
                device += size
            else:
                node.has_window = False
                self._structure.victims.refresh(node)
        return WindowEviction(device, window)

    def _use(self, node: Node) -> None:
        node.window_access = self._structure.tick()
        self._structure.victims.refresh(node)
