"""The radix tree's shape: walk, split, attach, detach, touch, lock. Nothing here is ever announced.

root ── [p0 p1] ──┬── [p2 p3 p4]        a node holds a run of pages; children of one node
                  └── [q2]              differ in their first page

split([p2 p3 p4], 1):   [p2] ── [p3 p4]     the node keeps its identity as the lower part
"""

from collections.abc import Iterator

from worker.tree.config import TreeConfig
from worker.tree.node import HostState, Node, child_key, hash_pages
from worker.tree.page_hash import PLAIN, Namespace, Page, namespace_of, split_pages
from worker.tree.results import CacheKey
from worker.tree.victims import Victims


class Structure:
    """Shape, access order and locks of one tree.

    ``copies`` maps a copy in flight to the nodes it covers, top down; a split adds the upper part.
    ``locked_tokens`` are the device slots of locked nodes.
    """

    def __init__(self, config: TreeConfig, victims: Victims) -> None:
        self.config = config
        self.victims = victims
        self.copies: dict[int, list[Node]] = {}
        self.locked_tokens = 0
        self._clock = 0
        self.root = Node(None, PLAIN, [])
        self.root.is_on_device = True

    def tick(self) -> int:
        """The next moment of the logical clock; every moment is unique."""
        self._clock += 1
        return self._clock

    def pages_of(self, key: CacheKey) -> list[Page]:
        """Whole pages of a key."""
        return split_pages(key.tokens, self.config.page_size, is_eagle=self.config.is_eagle)

    def namespace_of(self, key: CacheKey) -> Namespace:
        """Namespace of a key."""
        return namespace_of(self.config, key.extra_key, key.cache_salt)

    def num_tokens(self, node: Node) -> int:
        """Slots that one copy of a node takes."""
        return len(node.pages) * self.config.page_size

    def walk(self, start: Node, namespace: Namespace, pages: list[Page]) -> Iterator[Node]:
        """Nodes that spell ``pages`` below ``start``, splitting the last where it is longer.

        A node is yielded before its children are looked for.
        """
        node, at = start, 0
        while at < len(pages):
            child = node.children.get(child_key(namespace, pages[at]))
            if child is None:
                return
            common = common_pages(child.pages, pages, at)
            node = self.split(child, common) if common < len(child.pages) else child
            yield node
            at += common

    def touch(self, node: Node) -> None:
        """Make a node the latest accessed one. O(log n) for a candidate of eviction."""
        node.last_access = self.tick()
        self.victims.refresh(node)

    def attach(
        self,
        parent: Node,
        namespace: Namespace,
        pages: list[Page],
        digests: list[bytes] | None = None,
    ) -> Node:
        """Add a child without any copy; the caller makes a copy arrive at once. O(bytes)."""
        node = Node(parent, namespace, pages)
        node.serial = node.created = node.last_access = self.tick()
        hash_pages(node, digests)
        parent.children[node.key] = node
        self.victims.refresh(parent)
        return node

    def detach(self, node: Node) -> None:
        """Take a node without copies and children out of the tree."""
        parent = node.parent
        assert parent is not None, "the root stays"
        assert not node.children, "a node with children stays"
        assert not node.is_on_device, "a node with a device copy stays"
        assert node.host is HostState.NONE, "a node with a host copy stays"
        del parent.children[node.key]
        node.is_dead = True
        self.victims.refresh(node)
        self.victims.refresh(parent)

    def split(self, node: Node, num_pages: int) -> Node:
        """Cut a node after ``num_pages``; returns the new upper part, the node becomes the lower one.

        Both parts keep state, hits, device locks and the copy in flight; a host lock stays with the
        lower part, which keeps the upper one from being a leaf. Both count as accessed. O(pages).
        """
        parent = node.parent
        assert parent is not None, "the root has no pages"
        upper = Node(parent, node.namespace, node.pages[:num_pages])
        upper.serial = upper.last_access = self.tick()
        _inherit(upper, node)
        node.last_access = self.tick()
        parent.children[node.key] = upper
        _cut(node, upper, num_pages)
        upper.children = {node.key: node}
        upper.num_device_children = int(node.is_on_device)
        node.parent = upper
        if node.copy_in_flight is not None:
            covered = self.copies[node.copy_in_flight]
            covered.insert(covered.index(node), upper)
        self.victims.refresh(upper)
        self.victims.refresh(node)
        return upper

    def lock(self, node: Node) -> None:
        """Keep the device copies of a node and its ancestors. O(depth)."""
        if not node.is_on_device:
            raise ValueError("the node is not on the device")
        for ancestor in node.path():
            ancestor.device_locks += 1
            if ancestor.device_locks == 1:
                self.locked_tokens += self.num_tokens(ancestor)
                self.victims.refresh(ancestor)

    def unlock(self, node: Node) -> None:
        """Undo one lock of the same node. O(depth)."""
        for ancestor in node.path():
            if ancestor.device_locks == 0:
                raise ValueError("the node is not locked")
            ancestor.device_locks -= 1
            if ancestor.device_locks == 0:
                self.locked_tokens -= self.num_tokens(ancestor)
                self.victims.refresh(ancestor)

    def begin_copy(self, nodes: list[Node]) -> int:
        """Mark nodes (top down) as covered by one copy in flight; returns its id."""
        copy = self.tick()
        self.copies[copy] = nodes
        for node in nodes:
            assert node.copy_in_flight is None, "a node has two copies in flight"
            node.copy_in_flight = copy
            self.victims.refresh(node)
        return copy

    def end_copy(self, copy: int) -> list[Node]:
        """Unmark the nodes of a copy; returns them, top down, with the parts split off meanwhile."""
        nodes = self.copies.pop(copy)
        for node in reversed(nodes):
            node.copy_in_flight = None
            self.victims.refresh(node)
        return nodes

    def lock_host(self, node: Node) -> None:
        """Keep the host copy of one node."""
        node.host_locks += 1
        self.victims.refresh(node)

    def unlock_host(self, node: Node) -> None:
        """Undo one host lock."""
        if node.host_locks == 0:
            raise ValueError("the node's host copy is not locked")
        node.host_locks -= 1
        self.victims.refresh(node)

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


def common_pages(own: list[Page], pages: list[Page], start: int) -> int:
    """Number of leading pages that ``own`` shares with ``pages[start:]``. O(pages)."""
    longest = min(len(own), len(pages) - start)
    if own[:longest] == pages[start : start + longest]:
        return longest
    return next(i for i in range(longest) if own[i] != pages[start + i])


def _inherit(upper: Node, node: Node) -> None:
    upper.is_on_device = node.is_on_device
    upper.host = node.host
    upper.has_window = node.has_window
    upper.copy_in_flight = node.copy_in_flight
    upper.device_locks = node.device_locks
    upper.hit_count = node.hit_count
    upper.priority = node.priority
    upper.created = node.created
    upper.window_access = node.window_access


def _cut(node: Node, upper: Node, num_pages: int) -> None:
    is_one_chain = node.storage_digests is node.event_digests
    upper.storage_digests = node.storage_digests[:num_pages]
    node.storage_digests = node.storage_digests[num_pages:]
    if is_one_chain:
        upper.event_digests, node.event_digests = upper.storage_digests, node.storage_digests
    else:
        upper.event_digests = node.event_digests[:num_pages]
        node.event_digests = node.event_digests[num_pages:]
    node.pages = node.pages[num_pages:]
