"""The embedded tree core: which token pages a worker holds, on which tier, and what it announces.

A radix tree of token pages with a device pool and an optional host pool. Pure: a logical counter
orders accesses, pools are token counters without slot numbers, copies are "issued" and
"acknowledged" by the caller, who owns the clock.

A request's life against it:

    match = core.match(key)                    # touches
    core.lock(match.device_node)
    core.load_back(match) … finish_load_back   # if the host part is worth it; then match and lock anew
    core.reserve(uncached + output tokens)     # evicts if needed; False = wait
    core.insert(key, owned_tokens=…)           # prompt after prefill, all of it at the end
    core.unlock(match.device_node)

Source: SGLang 0.5.23 unified tree core, as recorded operation by operation.
"""

from collections.abc import Sequence

from protocol import KvEvent
from worker.tree.config import TreeConfig
from worker.tree.node import Node
from worker.tree.pool import TokenPool
from worker.tree.results import (
    AckedBackup,
    Backup,
    CacheKey,
    InsertHostResult,
    InsertResult,
    LoadBack,
    Match,
    PageHash,
    Residency,
    TreeCounters,
)


class TreeCore:
    """One rank's cache. Construction announces AllBlocksCleared."""

    config: TreeConfig
    device: TokenPool
    host: TokenPool | None
    counters: TreeCounters
    root: Node

    def __init__(self, config: TreeConfig) -> None:
        raise NotImplementedError

    # ---- slots of running requests

    def reserve(self, num_tokens: int) -> bool:
        """Take device slots for a running request, evicting if needed.

        Returns:
            False, with nothing taken (though perhaps something evicted), if too little is evictable.
        """
        raise NotImplementedError

    def release(self, num_tokens: int) -> None:
        """Give back reserved device slots that no insert consumed."""
        raise NotImplementedError

    def reserve_host(self, num_tokens: int) -> bool:
        """Take host slots for a storage prefetch, evicting if needed; see ``reserve``."""
        raise NotImplementedError

    def release_host(self, num_tokens: int) -> None:
        """Give back reserved host slots that no refill consumed."""
        raise NotImplementedError

    # ---- lookup

    def match(self, key: CacheKey) -> Match:
        """Find the longest readable prefix in whole pages, and touch it.

        Splits the last node where the match ends inside it. Publishes nothing. O(pages).
        """
        raise NotImplementedError

    def lock(self, node: Node) -> None:
        """Keep the device pages from the root to ``node`` from being evicted. Locks nest."""
        raise NotImplementedError

    def unlock(self, node: Node) -> None:
        """Undo one ``lock`` of the same node."""
        raise NotImplementedError

    def lock_host(self, node: Node) -> None:
        """Keep the host copy of ``node`` (an anchor of a prefetch, say) from being evicted. Nests."""
        raise NotImplementedError

    def unlock_host(self, node: Node) -> None:
        """Undo one ``lock_host`` of the same node."""
        raise NotImplementedError

    # ---- growth

    def insert(
        self,
        key: CacheKey,
        *,
        owned_tokens: int | None = None,
        priority: int = 0,
        session_id: str | None = None,
    ) -> InsertResult:
        """Cache the whole pages of a request's tokens.

        Publishes a GPU store for every page that was not on the device. Counts a hit on every node
        of the key, which may issue backups.

        Args:
            owned_tokens: reserved slots of the caller for the tokens of ``key`` beyond its locked
                match. Those needed pass to the tree, all others are given back to the pool: afterwards
                the caller owns none of them. None = slots are taken from the pool, evicting if needed.

        Raises:
            ValueError: the owned slots, or the pool, do not cover what is not on the device.
        """
        raise NotImplementedError

    def load_back(self, match: Match) -> LoadBack | None:
        """Copy the host part of a match to the device, evicting if needed.

        The pages are readable and announced on GPU at once, and pinned until ``finish_load_back``.
        The match itself is out of date afterwards.

        Returns:
            None if there is nothing to load, fewer tokens than the threshold, or no room.
        """
        raise NotImplementedError

    def finish_load_back(self, load_back: LoadBack) -> None:
        """The copy is complete; its pages may be evicted again."""
        raise NotImplementedError

    def pending_backups(self) -> list[Backup]:
        """Copies to host in flight, oldest first."""
        raise NotImplementedError

    def acknowledge(self, backup: Backup) -> AckedBackup:
        """The oldest copy in flight is complete: readable on host, and announced.

        Raises:
            ValueError: not the oldest copy in flight.
        """
        raise NotImplementedError

    def insert_host(
        self,
        anchor: Node | None,
        key: CacheKey,
        *,
        digests: Sequence[bytes] | None = None,
    ) -> InsertHostResult:
        """Refill pages from storage into host memory, below ``anchor``.

        Consumes ``len(key.tokens)`` slots taken by ``reserve_host``; those not needed are given back.
        Publishes a host store for every page that had no host copy; nothing on a full hit, nothing
        where the refill is dropped.

        Args:
            anchor: node that the tokens follow (``Match.node``); None = the root.
            key: the whole pages after the anchor, in the anchor's namespace.
            digests: storage digests of those pages, if known; computed otherwise.
        """
        raise NotImplementedError

    # ---- pressure

    def evict_device(self, num_tokens: int) -> int:
        """Free at least ``num_tokens`` device slots if possible: demote leaves with a host copy, drop
        those without one (write_back copies them to host first).

        Returns:
            Slots freed.
        """
        raise NotImplementedError

    def evict_host(self, num_tokens: int) -> int:
        """Free at least ``num_tokens`` host slots if possible.

        Returns:
            Slots freed.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Forget everything, copies in flight and reservations included; announces
        AllBlocksCleared. Handles from before are dead."""
        raise NotImplementedError

    # ---- views

    def take_events(self) -> list[KvEvent]:
        """Hand over what was recorded since the last call, in order."""
        raise NotImplementedError

    def residency(self) -> Residency:
        """Walk the tree for what it truly holds. O(pages)."""
        raise NotImplementedError

    def page_hashes(self, key: CacheKey) -> list[PageHash]:
        """Both hashes of every whole page of ``key``, from the root; changes nothing. O(tokens)."""
        raise NotImplementedError

    def storage_digests(self, anchor: Node | None, key: CacheKey) -> list[bytes]:
        """Storage digests of the whole pages of ``key`` that follow ``anchor``. O(tokens)."""
        raise NotImplementedError

    def check(self) -> None:
        """Verify every invariant; O(pages).

        Raises:
            AssertionError: one is broken; the message names it.
        """
        raise NotImplementedError
