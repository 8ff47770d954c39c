"""Everything that may yield under pressure, in one place that every change of a node reports to."""

from collections.abc import Collection

from worker.tree.config import TreeConfig, WritePolicy
from worker.tree.duplicates import Duplicates
from worker.tree.eviction import POLICY_RANKS, VictimOrder
from worker.tree.node import Node


class Victims:
    """The candidates of one tree.

    Attributes:
        device_leaves: device copies that may go, in the policy's order.
        host_leaves: nodes on host only that may go, in the policy's order.
        windows: nodes whose sliding-window part may go, least recently used first.
        duplicates: host copies of device nodes; None where host pressure leaves them alone.
    """

    def __init__(self, config: TreeConfig) -> None:
        rank = POLICY_RANKS[config.eviction_policy]
        self.device_leaves = VictimOrder(rank)
        self.host_leaves = VictimOrder(rank)
        self.windows = VictimOrder(lambda node: (node.window_access,))
        reclaims = config.has_host_tier and config.write_policy is WritePolicy.WRITE_BACK
        self.duplicates = Duplicates() if reclaims else None

    def refresh(self, node: Node) -> None:
        """Bring a node up to date after any change of it or of its children. O(log n)."""
        is_alive = not node.is_dead
        self.device_leaves.refresh(node, is_member=is_alive and node.is_device_leaf)
        self.host_leaves.refresh(node, is_member=is_alive and node.is_host_leaf)
        self.windows.refresh(node, is_member=is_alive and node.is_window_evictable)
        if self.duplicates is not None:
            self.duplicates.refresh(node)

    def check(self, nodes: Collection[Node]) -> None:
        """Verify every order against all living nodes."""
        self.device_leaves.check([node for node in nodes if node.is_device_leaf])
        self.host_leaves.check([node for node in nodes if node.is_host_leaf])
        self.windows.check([node for node in nodes if node.is_window_evictable])
        if self.duplicates is not None:
            self.duplicates.check(nodes)
