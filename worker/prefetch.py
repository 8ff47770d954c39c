"""Storage prefetch: pages that only storage holds come to host memory before their prefill.

A fetch is issued when a request arrives: the run of stored pages beyond what device and host hold, if
it is long enough, with host slots reserved for it. One link serves the fetches in order. A fetch ends
when it is complete, or earlier where the policy does not wait; what has arrived by then is refilled
into the tree, and the slots of the rest are given back.

    issue ── storage.exists, reserve_host ──▶ in flight ── settle ──▶ storage.fetch, insert_host
                                                  └── drop ─────────▶ release_host

Source: SGLang 0.5.23 hierarchical cache (threshold, policies, half of the host pool at most).
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from protocol import EngineModel
from worker.storage import Storage
from worker.tree import CacheKey, Node, StoragePage, TreeCore


class PrefetchPolicy(StrEnum):
    """How long a request waits for its fetch: not at all once it could run, to the end, or to the end
    but no longer than a timeout that grows with the length."""

    BEST_EFFORT = "best_effort"
    WAIT_COMPLETE = "wait_complete"
    TIMEOUT = "timeout"


class PrefetchSkip(StrEnum):
    """Why stored pages were not fetched."""

    BELOW_THRESHOLD = "below_threshold"
    CAPACITY = "capacity"
    HOST_FULL = "host_full"


@dataclass(frozen=True, slots=True)
class PrefetchLimits:
    """Threshold in tokens, timeouts in seconds."""

    threshold: int = 256
    policy: PrefetchPolicy = PrefetchPolicy.TIMEOUT
    timeout_base_s: float = 1.0
    timeout_s_per_1k_tokens: float = 0.25

    def deadline(self, num_tokens: int, now: float) -> float:
        """Engine time up to which a request waits for a fetch that is issued now."""
        match self.policy:
            case PrefetchPolicy.BEST_EFFORT:
                return now
            case PrefetchPolicy.WAIT_COMPLETE:
                return math.inf
            case PrefetchPolicy.TIMEOUT:
                return now + self.timeout_base_s + self.timeout_s_per_1k_tokens * num_tokens / 1024


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """One fetch in flight. Times are engine seconds.

    Attributes:
        anchor: node that the pages follow; its host copy is locked.
        key: the tokens of the pages, after the anchor; of pairs, one token more than slots are reserved for.
        pages: of storage, in order.
        ends_at: complete.
        deadline: given up, as far as it has come.
        num_tokens: host slots reserved for it.
    """

    anchor: Node
    key: CacheKey
    pages: tuple[StoragePage, ...]
    started_at: float
    ends_at: float
    deadline: float
    num_tokens: int


@dataclass(slots=True)
class PrefetchCounters:
    """Since construction. ``skipped`` counts fetches by reason, the rest are tokens but ``issued``."""

    issued: int = 0
    fetched_tokens: int = 0
    refilled_tokens: int = 0
    abandoned_tokens: int = 0
    skipped: Counter[PrefetchSkip] = field(default_factory=Counter)


class Prefetcher:
    """The storage side of one rank. At most half of the host pool is reserved by fetches in flight."""

    def __init__(
        self, tree: TreeCore, storage: Storage, model: EngineModel, limits: PrefetchLimits
    ) -> None:
        self._tree = tree
        self._storage = storage
        self._model = model
        self._limits = limits
        self._in_flight: list[Prefetch] = []
        self._link_free_at = 0.0
        self.counters = PrefetchCounters()

    @property
    def in_flight_tokens(self) -> int:
        """Host slots reserved by fetches in flight."""
        return sum(prefetch.num_tokens for prefetch in self._in_flight)

    def lookup_pages(self, key: CacheKey) -> list[StoragePage]:
        """Every page that ``issue`` may ask storage for; nothing is touched. O(tokens)."""
        if len(key.tokens) < self._limits.threshold:
            return []
        return self._tree.storage_pages(None, key)

    def issue(self, key: CacheKey, now: float) -> Prefetch | None:
        """Start to fetch what storage holds beyond the tree's match of ``key``.

        Returns:
            None where there is too little to fetch, or no room for it.
        """
        found = self._stored_run(key)
        if found is None:
            return None
        anchor, rest, pages = found
        num_tokens = len(pages) * self._tree.config.page_size
        duration = self._model.fetch_s(num_tokens)
        started_at = max(now, self._link_free_at)
        self._link_free_at = started_at + duration
        prefetch = Prefetch(
            anchor,
            rest,
            pages,
            started_at,
            started_at + duration,
            self._limits.deadline(num_tokens, now),
            num_tokens,
        )
        self._in_flight.append(prefetch)
        self.counters.issued += 1
        return prefetch

    def is_due(self, prefetch: Prefetch, now: float) -> bool:
        """Whether the request need not wait any longer."""
        return now >= min(prefetch.ends_at, prefetch.deadline)

    def next_due(self) -> float | None:
        """Engine time at which the next fetch is due."""
        return min((min(p.ends_at, p.deadline) for p in self._in_flight), default=None)

    def settle(self, prefetch: Prefetch, now: float) -> int:
        """End a fetch and refill what has arrived.

        Returns:
            Tokens that became readable on host.
        """
        num_arrived = arrived_pages(len(prefetch.pages), prefetch.started_at, prefetch.ends_at, now)
        arrived = prefetch.pages[:num_arrived]
        good = self._storage.fetch(arrived) if arrived else 0
        num_tokens = good * self._tree.config.page_size
        self._tree.release_host(prefetch.num_tokens - num_tokens)
        self.counters.fetched_tokens += num_tokens
        self.counters.abandoned_tokens += prefetch.num_tokens - num_tokens
        inserted = 0
        if num_tokens:
            key = self._head(prefetch.key, num_tokens)
            digests = [page.digest for page in prefetch.pages[:good]]
            inserted = self._tree.insert_host(prefetch.anchor, key, digests=digests).inserted_tokens
        self._end(prefetch)
        self.counters.refilled_tokens += inserted
        return inserted

    def drop(self, prefetch: Prefetch) -> None:
        """End a fetch whose request is gone; nothing is refilled."""
        self._tree.release_host(prefetch.num_tokens)
        self.counters.abandoned_tokens += prefetch.num_tokens
        self._end(prefetch)

    def check(self) -> None:
        """Verify the bound of the reservations."""
        assert self.in_flight_tokens <= self._capacity(), "fetches hold too much of the host pool"

    def _end(self, prefetch: Prefetch) -> None:
        self._tree.unlock_host(prefetch.anchor)
        self._in_flight.remove(prefetch)

    def _stored_run(self, key: CacheKey) -> tuple[Node, CacheKey, tuple[StoragePage, ...]] | None:
        """Anchor, key and pages of what is to be fetched; slots are taken, the anchor is locked."""
        match = self._tree.match(key)
        page_size = self._tree.config.page_size
        rest = CacheKey(key.tokens[match.tokens :], key.extra_key, key.cache_salt)
        if len(rest.tokens) < self._limits.threshold:
            return None
        pages = self._tree.storage_pages(match.node, rest)
        num_pages = self._storage.exists([page.digest for page in pages])
        room = self._capacity() - self.in_flight_tokens
        num_tokens = min(num_pages, room // page_size) * page_size
        if num_pages * page_size < self._limits.threshold:
            self.counters.skipped[PrefetchSkip.BELOW_THRESHOLD] += 1
            return None
        if num_tokens < self._limits.threshold:
            self.counters.skipped[PrefetchSkip.CAPACITY] += 1
            return None
        self._tree.lock_host(match.node)
        if not self._tree.reserve_host(num_tokens):
            self._tree.unlock_host(match.node)
            self.counters.skipped[PrefetchSkip.HOST_FULL] += 1
            return None
        fetched = pages[: num_tokens // page_size]
        return match.node, self._head(rest, num_tokens), tuple(fetched)

    def _head(self, key: CacheKey, num_slots: int) -> CacheKey:
        """The tokens of the leading pages that take so many slots: of pairs one more, which ends the last."""
        num_tokens = num_slots + self._tree.config.is_eagle
        return CacheKey(key.tokens[:num_tokens], key.extra_key, key.cache_salt)

    def _capacity(self) -> int:
        host = self._tree.host
        return 0 if host is None else host.capacity // 2


def arrived_pages(num_pages: int, started_at: float, ends_at: float, now: float) -> int:
    """Pages of a fetch that are there, which come evenly; 0 before it has started."""
    if now >= ends_at:
        return num_pages
    return max(0, int((now - started_at) / (ends_at - started_at) * num_pages))
