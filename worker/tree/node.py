"""One node of the radix tree: a run of token pages that share one state.

    (on device, host state)      D = device copy, H = readable host copy, h = host copy in flight
    D, D+h, D+H, H               the legal states; a node with neither is dead and out of the tree

The tree changes nodes; callers hold them as opaque handles.
"""

from collections.abc import Iterator
from enum import Enum

from worker.tree.page_hash import Namespace, Page, chain_digests

ChildKey = tuple[str | None, str | None, Page]


class HostState(Enum):
    """What a node has on host."""

    NONE = 0
    IN_FLIGHT = 1
    READABLE = 2


class Node:
    """Handle of a cached prefix.

    Attributes:
        pages: at least one, except in the root.
        event_digests, storage_digests: one a page; the same list where the namespace is plain.
        num_device_children: children with a device copy.
        has_window: its sliding-window part is on the device too; only where there is such a component.
        device_locks: requests and copies that need the device copy; ancestors count them too.
        host_locks: prefetches that need the host copy of this node.
        copy_in_flight: id of the copy to or from host that covers it; there is one at most.
        last_access, window_access, created: ticks of the tree's logical clock.
        serial: unique in the tree.
        duplicate_since: its place among the duplicates; None = it has none.
    """

    __slots__ = (
        "children", "copy_in_flight", "created", "device_locks", "duplicate_since", "event_digests",  "has_window", "hit_count", "host",
        "host_locks", "is_dead", "is_on_device", "last_access", "namespace", "num_device_children",
        "pages", "parent", "priority", "serial", "storage_digests", "window_access",
    )  # fmt: skip

    def __init__(self, parent: "Node | None", namespace: Namespace, pages: list[Page]) -> None:
        self.parent = parent
        self.namespace = namespace
        self.pages = pages
        self.event_digests: list[bytes] = []
        self.storage_digests: list[bytes] = []
        self.children: dict[ChildKey, Node] = {}
        self.num_device_children = 0
        self.is_on_device = False
        self.host = HostState.NONE
        self.has_window = False
        self.is_dead = False
        self.copy_in_flight: int | None = None
        self.device_locks = 0
        self.host_locks = 0
        self.hit_count = 0
        self.priority = 0
        self.last_access = 0
        self.window_access = 0
        self.created = 0
        self.duplicate_since: int | None = None
        self.serial = 0

    @property
    def is_root(self) -> bool:
        """Whether this is the empty prefix."""
        return self.parent is None

    @property
    def is_backed(self) -> bool:
        """Whether a host copy exists or is on its way; the root needs none."""
        return self.parent is None or self.host is not HostState.NONE

    @property
    def is_device_leaf(self) -> bool:
        """Whether its device copy may go next."""
        return (
            self.is_on_device
            and self.parent is not None
            and not self.num_device_children
            and not self.device_locks
        )

    @property
    def is_host_leaf(self) -> bool:
        """Whether its host copy, and with it the node, may go next."""
        return (
            self.host is HostState.READABLE
            and not self.is_on_device
            and not self.children
            and not self.host_locks
            and not self.device_locks
        )

    @property
    def is_window_evictable(self) -> bool:
        """Whether its sliding-window part may go."""
        return self.has_window and not self.device_locks

    @property
    def has_both(self) -> bool:
        """Whether it is readable on both tiers."""
        return self.is_on_device and self.host is HostState.READABLE

    @property
    def is_duplicate(self) -> bool:
        """Whether its host copy is one of two, and free to go."""
        return self.has_both and self.copy_in_flight is None and not self.host_locks

    @property
    def key(self) -> ChildKey:
        """Its key among its parent's children."""
        return child_key(self.namespace, self.pages[0])

    def path(self) -> Iterator["Node"]:
        """From this node up to the child of the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


def child_key(namespace: Namespace, first_page: Page) -> ChildKey:
    """Key of a child that starts with ``first_page``."""
    return namespace.extra_key, namespace.cache_salt, first_page


def hash_pages(node: Node, digests: list[bytes] | None = None) -> None:
    """Fill in the digests of a new node from its parent's; ``digests`` = its storage digests, if known.

    O(bytes) of its pages, once more where the namespace has two chains.
    """
    parent, namespace = node.parent, node.namespace
    assert parent is not None
    if digests is None:
        prior = namespace.storage_seed if parent.is_root else parent.storage_digests[-1]
        digests = chain_digests(node.pages, prior)
    node.storage_digests = digests
    if namespace.storage_seed is None:
        node.event_digests = digests
        return
    prior = namespace.event_seed if parent.is_root else parent.event_digests[-1]
    node.event_digests = chain_digests(node.pages, prior)
