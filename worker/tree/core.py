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

from protocol import EngineHash, KvEvent
from worker.tree.backup import BackupQueue, storage_pages
from worker.tree.config import TreeConfig
from worker.tree.growth import Growth, InsertLabels
from worker.tree.invariants import check_pool, check_structure
from worker.tree.load_back import LoadBacks
from worker.tree.node import HostState, Node
from worker.tree.page_hash import chain_digests
from worker.tree.pool import TokenPool
from worker.tree.pressure import Pressure
from worker.tree.recorder import EventRecorder
from worker.tree.refill import Refill
from worker.tree.residence import Residence, event_hashes
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
    StoragePage,
    TreeCounters,
    WindowEviction,
)
from worker.tree.structure import Structure
from worker.tree.tier import CopyTier
from worker.tree.victims import Victims
from worker.tree.window import SlidingWindow


class TreeCore:
    """One rank's cache. Construction announces AllBlocksCleared."""

    config: TreeConfig
    device: TokenPool
    host: TokenPool | None
    counters: TreeCounters
    root: Node

    def __init__(self, config: TreeConfig) -> None:
        self.config = config
        self.counters = TreeCounters()
        self._recorder = EventRecorder(is_enabled=config.events_enabled)
        self._build()

    # ---- slots of running requests

    @property
    def room(self) -> int:
        """Device slots that are free, or hold what no lock keeps from being evicted."""
        return self.device.capacity - self._reserved - self._structure.locked_tokens

    def reserve(self, num_tokens: int) -> bool:
        """Take device slots for a running request, evicting if needed.

        Returns:
            False, with nothing taken (though perhaps something evicted), if too little is evictable.
        """
        if not self._pressure.take_device(num_tokens):
            return False
        self._reserved += num_tokens
        return True

    def release(self, num_tokens: int) -> None:
        """Give back reserved device slots that no insert consumed."""
        if num_tokens > self._reserved:
            raise ValueError(f"{num_tokens} slots released, {self._reserved} reserved")
        self.device.give(num_tokens)
        self._reserved -= num_tokens

    def reserve_host(self, num_tokens: int) -> bool:
        """Take host slots for a storage prefetch, evicting if needed; see ``reserve``."""
        if not self._pressure.take_host(num_tokens):
            return False
        self._reserved_host += num_tokens
        return True

    def release_host(self, num_tokens: int) -> None:
        """Give back reserved host slots that no refill consumed."""
        if num_tokens > self._reserved_host:
            raise ValueError(f"{num_tokens} host slots released, {self._reserved_host} reserved")
        if self.host is not None:
            self.host.give(num_tokens)
        self._reserved_host -= num_tokens

    # ---- lookup

    def match(self, key: CacheKey) -> Match:
        """Find the longest readable prefix in whole pages, and touch it.

        Splits the last node where the match ends inside it. Publishes nothing. O(pages).
        """
        namespace, pages = self._structure.namespace_of(key), self._structure.pages_of(key)
        path = list(self._structure.walk(self.root, namespace, pages))
        path = path[: self._window.usable(path)]
        for node in path:
            self._structure.touch(node)
        on_device = [node for node in path if node.is_on_device]
        deepest = path[-1] if path else self.root
        self._window.refresh(deepest)
        device_tokens = sum(map(self._structure.num_tokens, on_device))
        return Match(
            device_tokens=device_tokens,
            host_tokens=sum(map(self._structure.num_tokens, path)) - device_tokens,
            device_node=on_device[-1] if on_device else self.root,
            node=deepest,
        )

    def lock(self, node: Node) -> None:
        """Keep the device pages from the root to ``node`` from being evicted. Locks nest.

        Raises:
            ValueError: the node has no device copy.
        """
        self._structure.lock(node)

    def unlock(self, node: Node) -> None:
        """Undo one ``lock`` of the same node."""
        self._structure.unlock(node)

    def lock_host(self, node: Node) -> None:
        """Keep ``node`` (an anchor of a prefetch, say) in the tree, and its host copy from being evicted.
        Nests. Its device copy may be demoted."""
        self._structure.lock_host(node)

    def unlock_host(self, node: Node) -> None:
        """Undo one ``lock_host`` of the same node."""
        self._structure.unlock_host(node)

    # ---- growth

    def insert(
        self,
        key: CacheKey,
        *,
        owned_tokens: int | None = None,
        priority: int = 0,
        session_id: str | None = None,
        counted_tokens: int = 0,
    ) -> InsertResult:
        """Cache the whole pages of a request's tokens.

        Publishes a GPU store for every page that was not on the device. Counts a hit on every node
        of the key, which may issue backups.

        Args:
            owned_tokens: reserved slots of the caller for the tokens of ``key`` beyond its locked
                match. Those needed pass to the tree, all others are given back to the pool: afterwards
                the caller owns none of them. None = slots are taken from the pool, evicting if needed.
            session_id: named in the stores; for attribution only.
            counted_tokens: leading tokens that an earlier insert of the same request covered: their
                nodes count no second hit.

        Raises:
            ValueError: the owned slots, or the pool, do not cover what is not on the device.
        """
        if owned_tokens is not None and owned_tokens > self._reserved:
            raise ValueError(f"{owned_tokens} slots owned, {self._reserved} reserved")
        result = self._growth.insert(
            key, owned_tokens, InsertLabels(priority, session_id, counted_tokens)
        )
        self._reserved -= owned_tokens or 0
        return result

    def load_back(self, match: Match) -> LoadBack | None:
        """Copy the host part of a match to the device, evicting if needed.

        The pages are readable and announced on GPU at once, and pinned until ``finish_load_back``.
        The match itself is out of date afterwards.

        Returns:
            None if there is nothing to load, fewer tokens than the threshold, or no room.
        """
        return self._load_backs.start(match)

    def finish_load_back(self, load_back: LoadBack) -> None:
        """The copy is complete; its pages may be evicted again."""
        self._load_backs.finish(load_back)

    def back_up(self, node: Node) -> int:
        """Start copying a node, and its ancestors without a host copy, to host now, whatever its hits.

        Returns:
            Tokens of ``node`` on their way; 0 if it has a copy already, or host has no room.
        """
        return self._backups.issue(node)

    def pending_backups(self) -> list[Backup]:
        """Copies to host in flight, oldest first."""
        return self._backups.pending()

    def acknowledge(self, backup: Backup) -> AckedBackup:
        """The oldest copy in flight is complete: readable on host, and announced.

        Raises:
            ValueError: not the oldest copy in flight.
        """
        return self._backups.acknowledge(backup)

    def insert_host(
        self,
        anchor: Node | None,
        key: CacheKey,
        *,
        digests: Sequence[bytes] | None = None,
    ) -> InsertHostResult:
        """Refill pages from storage into host memory, below ``anchor``.

        Consumes slots taken by ``reserve_host``, one a token of ``key``'s whole pages; those not needed
        are given back.
        Publishes a host store for every page that had no host copy; nothing on a full hit, nothing
        where the refill is dropped.

        Args:
            anchor: node that the tokens follow (``Match.node``); None = the root.
            key: the whole pages after the anchor, in the anchor's namespace.
            digests: storage digests of those pages, if known; computed otherwise.

        Raises:
            ValueError: slots are lacking, or digests are not of these pages.
        """
        pages = self._structure.pages_of(key)
        owned = len(pages) * self.config.page_size
        if not self.config.has_host_tier or owned > self._reserved_host:
            raise ValueError(f"{owned} host slots needed, {self._reserved_host} reserved")
        if digests is not None and len(digests) != len(pages):
            raise ValueError(f"{len(digests)} digests of {len(pages)} pages")
        namespace = self._structure.namespace_of(key)
        result = self._refill.insert(anchor or self.root, namespace, pages, digests)
        self.release_host(owned - result.inserted_tokens)
        self._reserved_host -= result.inserted_tokens
        return result

    # ---- pressure

    def evict_device(self, num_tokens: int) -> int:
        """Free at least ``num_tokens`` device slots if possible: demote leaves with a host copy, drop
        those without one (write_back copies them to host first).

        Returns:
            Slots freed.
        """
        return self._pressure.evict_device(num_tokens)

    def evict_host(self, num_tokens: int) -> int:
        """Free at least ``num_tokens`` host slots if possible.

        Returns:
            Slots freed.
        """
        return self._pressure.evict_host(num_tokens)

    def evict_window(self, num_tokens: int) -> WindowEviction:
        """Free at least ``num_tokens`` slots of the sliding-window component if possible.

        A device leaf goes whole, which is announced; an inner node loses its window part silently: it
        stays announced, and a match may end before it.
        """
        return self._window.evict(num_tokens)

    def reset(self) -> None:
        """Forget everything and announce AllBlocksCleared. Copies in flight, reservations, locks and
        handles from before are void; pools are new objects."""
        for node in self._structure.nodes():
            node.is_dead = True
        self._build()

    # ---- views

    @property
    def num_events(self) -> int:
        """Events that wait for ``take_events``."""
        return len(self._recorder)

    def take_events(self) -> list[KvEvent]:
        """Hand over what was recorded since the last call, in order."""
        return self._recorder.take()

    def residency(self) -> Residency:
        """Walk the tree for what it truly holds. O(pages)."""
        nodes = list(self._structure.nodes())

        def hashes(state: HostState) -> tuple[EngineHash, ...]:
            return tuple(h for node in nodes if node.host is state for h in event_hashes(node))

        return Residency(
            device=tuple(h for node in nodes if node.is_on_device for h in event_hashes(node)),
            host=hashes(HostState.READABLE),
            host_in_flight=hashes(HostState.IN_FLIGHT),
        )

    def page_hashes(self, key: CacheKey) -> list[PageHash]:
        """Both hashes of every whole page of ``key``, from the root; changes nothing. O(tokens)."""
        namespace, pages = self._structure.namespace_of(key), self._structure.pages_of(key)
        storage = chain_digests(pages, namespace.storage_seed)
        event = chain_digests(pages, namespace.event_seed)
        return [
            PageHash(digest, namespace.event_hash(event_digest))
            for digest, event_digest in zip(storage, event, strict=True)
        ]

    def storage_digests(self, anchor: Node | None, key: CacheKey) -> list[bytes]:
        """Storage digests of the whole pages of ``key`` that follow ``anchor``. O(tokens)."""
        return [page.digest for page in self.storage_pages(anchor, key)]

    def storage_pages(self, anchor: Node | None, key: CacheKey) -> list[StoragePage]:
        """The whole pages of ``key`` that follow ``anchor``, as storage knows them. O(tokens)."""
        pages = self._structure.pages_of(key)
        if anchor is None or anchor.is_root:
            prior = self._structure.namespace_of(key).storage_seed
        else:
            prior = anchor.storage_digests[-1]
        digests = chain_digests(pages, prior)
        return storage_pages(digests, pages, is_eagle=self.config.is_eagle)

    def pages_on(self, node: Node) -> list[StoragePage]:
        """The pages of one node, as storage knows them. O(tokens)."""
        is_eagle = self.config.is_eagle
        return storage_pages(node.storage_digests, node.pages, is_eagle=is_eagle)

    def check(self) -> None:
        """Verify every invariant; O(pages).

        Raises:
            AssertionError: one is broken; the message names it.
        """
        check_structure(self._structure)
        nodes = list(self._structure.nodes())
        size = self._structure.num_tokens
        check_pool(self.device, sum(size(n) for n in nodes if n.is_on_device), self._reserved)
        if self.host is not None:
            check_pool(self.host, sum(size(n) for n in nodes if n.is_backed), self._reserved_host)

    def _build(self) -> None:
        """Wire an empty tree; pools are whole again."""
        self._reserved = self._reserved_host = 0
        config, counters = self.config, self.counters
        self.device = TokenPool(config.device_tokens)
        self.host = None if config.host_tokens is None else TokenPool(config.host_tokens)
        pools = {CopyTier.DEVICE: self.device}
        if self.host is not None:
            pools[CopyTier.HOST] = self.host
        victims = Victims(config)
        structure = Structure(config, victims)
        residence = Residence(config, self._recorder, victims, pools)
        self.root = structure.root
        self._structure = structure
        self._pressure = Pressure(structure, residence, pools, counters)
        self._backups = BackupQueue(structure, residence, self._pressure, counters)
        self._load_backs = LoadBacks(structure, residence, self._pressure, counters)
        self._refill = Refill(structure, residence, counters)
        self._window = SlidingWindow(structure, self._pressure)
        self._growth = Growth(
            structure, residence, self._pressure, self._backups, self._window, counters
        )
        residence.clear()
