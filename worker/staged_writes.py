"""Writes to storage through a host pool that is no cache: copied, written, and given back.

    insert ─▶ queue ── host slots, lock ──▶ device → host ── unlock ──▶ host → storage ── slots back
              (nothing held)                                            then storage is believed to hold it

First in, first out, parents before children, so that storage holds prefixes. The queue holds nothing: a node that
is split, evicted or left by its parent meanwhile is dropped, and queued anew when it is hit again. Reads go first:
writes hold no more than what reads leave of the pool, but a fifth of it always.

Source: SGLang 0.5.23, host memory mode ``buffer_only`` (order, admission, shares of the pool).
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from protocol import EngineModel
from worker.storage import Storage
from worker.storage_belief import StorageBelief
from worker.tree import Node, StoragePage, TreeCore

_LEAST_SHARE = 5
_SPARE_SHARE = 10
_MAX_BACKLOG_POOLS = 2


class WriteDrop(StrEnum):
    """Why pages that were to be written are not: split or evicted meanwhile, their parent's are not written either,
    more than the host pool holds, or too many wait."""

    STALE = "stale"
    PARENT_MISSING = "parent_missing"
    TOO_LARGE = "too_large"
    BACKLOG = "backlog"


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """One node's pages on their way: ``ends_at`` of the copy that is under way."""

    node: Node
    pages: tuple[StoragePage, ...]
    num_tokens: int
    ends_at: float


class StagedWrites:
    """The writes of one rank. The queue is bounded by twice the device pool, what is on its way by the host pool."""

    def __init__(
        self, tree: TreeCore, storage: Storage, model: EngineModel, belief: StorageBelief
    ) -> None:
        self._tree = tree
        self._storage = storage
        self._model = model
        self._belief = belief
        self._queue: dict[Node, int] = {}
        self._queued_pages = 0
        self._copies: deque[_Write] = deque()
        self._stores: deque[_Write] = deque()
        self._digests: Counter[bytes] = Counter()
        self._copy_link_free_at = self._store_link_free_at = 0.0
        self.staged_tokens = 0
        self.stored_tokens = 0
        self.dropped: Counter[WriteDrop] = Counter()

    def __len__(self) -> int:
        """Nodes that wait or are on their way."""
        return len(self._queue) + len(self._copies) + len(self._stores)

    def want(self, nodes: Iterable[Node]) -> None:
        """Queue what storage is not believed to hold, top down. O(pages)."""
        for node in nodes:
            if node in self._queue or all(map(self._is_covered, node.storage_digests)):
                continue
            reason = self._refusal(node)
            if reason is not None:
                self.dropped[reason] += 1
                continue
            self._queue[node] = len(node.pages)
            self._queued_pages += len(node.pages)

    def launch(self, now: float) -> None:
        """Start the copies that there is room for, oldest first."""
        while self._queue:
            node, num_pages = next(iter(self._queue.items()))
            reason = self._loss(node, num_pages)
            if reason is not None:
                self.dropped[reason] += 1
            elif self.staged_tokens >= self._room() or not self._start(node, now):
                return
            del self._queue[node]
            self._queued_pages -= num_pages

    def next_due(self) -> float | None:
        """Engine time at which the next copy or store is complete."""
        ends = [writes[0].ends_at for writes in (self._copies, self._stores) if writes]
        return min(ends, default=None)

    def settle(self, now: float) -> bool:
        """Complete what is due, and start what waits; whether slots have become free by it."""
        num_before = len(self._copies) + len(self._stores)
        while self._copies and self._copies[0].ends_at <= now:
            self._store(self._copies.popleft(), now)
        num_stored = 0
        while self._stores and self._stores[0].ends_at <= now:
            self._finish(self._stores.popleft())
            num_stored += 1
        has_settled = num_stored > 0 or num_before > len(self._copies) + len(self._stores)
        self.launch(now)
        return has_settled

    def clear(self) -> None:
        """Forget all, after the tree has."""
        self._queue.clear()
        self._queued_pages = 0
        self._copies.clear()
        self._stores.clear()
        self._digests.clear()
        self.staged_tokens = 0

    def check(self) -> None:
        """Verify slots, locks and what is counted as on its way."""
        queued = sum(self._queue.values())
        assert queued == self._queued_pages, f"{queued} pages wait, not {self._queued_pages}"
        under_way = [*self._copies, *self._stores]
        staged = sum(write.num_tokens for write in under_way)
        assert staged == self.staged_tokens, f"{staged} staged, not {self.staged_tokens}"
        digests = Counter(page.digest for write in under_way for page in write.pages)
        assert digests == self._digests, "digests under way miscounted"
        assert all(write.node.device_locks for write in self._copies), "a copy without its lock"

    def _is_covered(self, digest: bytes) -> bool:
        return digest in self._digests or digest in self._belief

    def _has_parent(self, node: Node) -> bool:
        """Whether storage will hold what the node's pages follow."""
        parent = node.parent
        assert parent is not None, "the root has no pages"
        is_queued = parent.is_root or parent in self._queue
        return is_queued or self._is_covered(parent.storage_digests[-1])

    def _refusal(self, node: Node) -> WriteDrop | None:
        host, size = self._tree.host, self._tree.config.page_size
        if host is None or len(node.pages) * size > host.capacity:
            return WriteDrop.TOO_LARGE
        if not self._has_parent(node):
            return WriteDrop.PARENT_MISSING
        backlog = (self._queued_pages + len(node.pages)) * size
        if backlog > _MAX_BACKLOG_POOLS * self._tree.device.capacity:
            return WriteDrop.BACKLOG
        return None

    def _loss(self, node: Node, num_pages: int) -> WriteDrop | None:
        """Why a node that waited is not written."""
        if node.is_dead or not node.is_on_device or len(node.pages) != num_pages:
            return WriteDrop.STALE
        return None if self._has_parent(node) else WriteDrop.PARENT_MISSING

    def _room(self) -> int:
        """Host slots that writes may hold beside what reads hold."""
        assert self._tree.host is not None, "nothing waits without a host pool"
        capacity = self._tree.host.capacity
        reads = self._tree.host.held - self.staged_tokens
        return max(capacity // _LEAST_SHARE, capacity - reads - capacity // _SPARE_SHARE)

    def _start(self, node: Node, now: float) -> bool:
        """Copy a node's pages to host; its device copy stays meanwhile. False where host has no room."""
        num_tokens = len(node.pages) * self._tree.config.page_size
        if not self._tree.reserve_host(num_tokens):
            return False
        self._tree.lock(node)
        pages = tuple(self._tree.pages_on(node))
        start = max(now, self._copy_link_free_at)
        self._copy_link_free_at = start + self._model.load_back_s(num_tokens)
        self._copies.append(_Write(node, pages, num_tokens, self._copy_link_free_at))
        self._digests.update(page.digest for page in pages)
        self.staged_tokens += num_tokens
        return True

    def _store(self, copy: _Write, now: float) -> None:
        """A copy lies on host: the device copy may go, and storage is written, as fast as it is read."""
        self._tree.unlock(copy.node)
        start = max(now, self._store_link_free_at)
        self._store_link_free_at = start + self._model.fetch_s(copy.num_tokens)
        self._stores.append(
            _Write(copy.node, copy.pages, copy.num_tokens, self._store_link_free_at)
        )

    def _finish(self, store: _Write) -> None:
        """Storage has answered. What it may have refused counts as held until a lookup corrects it."""
        digests = [page.digest for page in store.pages]
        self.stored_tokens += self._storage.put(store.pages) * self._tree.config.page_size
        self._belief.add(digests)
        for digest in digests:
            self._digests[digest] -= 1
            if not self._digests[digest]:
                del self._digests[digest]
        self._tree.release_host(store.num_tokens)
        self.staged_tokens -= store.num_tokens
