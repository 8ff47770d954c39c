"""The one gate: a copy becomes readable, or goes away, here and nowhere else, and here it is announced.

Every path that gives a node a device or host copy calls ``arrive``; every path that takes one away
calls ``leave``. Both change the node, tell the recorder, and keep the eviction orders current, so no
path can change what is readable and stay silent.
"""

from protocol import EngineHash
from worker.tree.config import TreeConfig
from worker.tree.node import HostState, Node
from worker.tree.page_hash import run_of
from worker.tree.pool import TokenPool
from worker.tree.recorder import EventRecorder, StoreLabels
from worker.tree.tier import MEDIUM, CopyTier
from worker.tree.victims import Victims


class Residence:
    """Who is readable where. Slots are taken by the caller before a copy arrives, and go back to
    their pool here when it leaves."""

    def __init__(
        self,
        config: TreeConfig,
        recorder: EventRecorder,
        victims: Victims,
        pools: dict[CopyTier, TokenPool],
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._victims = victims
        self._pools = pools

    def arrive(
        self, node: Node, tier: CopyTier, *, is_refill: bool = False, session_id: str | None = None
    ) -> None:
        """A copy of ``node`` is readable on ``tier`` from now on; announced unless it is a refill and
        refills are muted. O(pages)."""
        if tier is CopyTier.DEVICE:
            assert not node.is_on_device, "a device copy arrives twice"
            node.is_on_device = True
            if node.parent is not None:
                node.parent.num_device_children += 1
        else:
            assert node.host is not HostState.READABLE, "a host copy arrives twice"
            node.host = HostState.READABLE
        self._refresh(node)
        if self._config.announce_refills or not is_refill:
            self._announce(node, tier, session_id)

    def leave(self, node: Node, tier: CopyTier) -> None:
        """The copy of ``node`` on ``tier`` is gone: announced, and its slots are free. O(pages)."""
        if tier is CopyTier.DEVICE:
            assert node.is_on_device, "a device copy leaves twice"
            node.is_on_device = node.has_window = False
            if node.parent is not None:
                node.parent.num_device_children -= 1
        else:
            assert node.host is HostState.READABLE, "a host copy leaves that was not readable"
            node.host = HostState.NONE
        self._pools[tier].give(len(node.pages) * self._config.page_size)
        self._refresh(node)
        if self._recorder.is_enabled:
            self._recorder.remove(MEDIUM[tier], event_hashes(node))

    def clear(self) -> None:
        """Everything is gone, on every tier."""
        self._recorder.clear()

    def _refresh(self, node: Node) -> None:
        self._victims.refresh(node)
        if node.parent is not None:
            self._victims.refresh(node.parent)

    def _announce(self, node: Node, tier: CopyTier, session_id: str | None) -> None:
        if not self._recorder.is_enabled:
            return
        config, namespace = self._config, node.namespace
        labels = StoreLabels(
            medium=MEDIUM[tier],
            block_size=config.page_size,
            cache_salt=namespace.cache_salt,
            session_id=session_id,
            lora_name=namespace.adapter,
            is_eagle=config.is_eagle,
        )
        run = run_of(node.pages, is_eagle=config.is_eagle)
        self._recorder.store(labels, parent_hash(node), event_hashes(node), run)


def event_hashes(node: Node) -> list[EngineHash]:
    """Hashes on the wire of a node's pages."""
    if node.namespace.rename_seed is None:
        return [int.from_bytes(digest[:8], "big") for digest in node.event_digests]
    return [node.namespace.event_hash(digest) for digest in node.event_digests]


def parent_hash(node: Node) -> int | None:
    """Hash on the wire of the page before a node's first; None at the start of a prompt."""
    parent = node.parent
    if parent is None or parent.is_root:
        return None
    return node.namespace.event_hash(parent.event_digests[-1])
