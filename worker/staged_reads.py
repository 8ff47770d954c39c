"""Reads from storage through a host pool that is no cache: fetched for one request, and put on the device with it.

    issue ─▶ parked ── host slots ──▶ fetching ── settle ──▶ lies on host ── admission ──▶ device
                │                         │                       │           slots back when copied
                └──────── drop ───────────┴─────── drop ──────────┘

What lies on host is in no tree: only the request that it came for can use it, and only while the device holds
what it follows. The request's admission inserts it, so that the first that is heard of it is its store on GPU.
A fetch waits for room for all of it, in order of arrival, and its request with it, as long as the policy says.

Source: SGLang 0.5.23, host memory mode ``buffer_only`` (parking, nine tenths of the pool, splice at admission).
"""

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum

from protocol import EngineModel
from worker.prefetch import PrefetchCounters, PrefetchLimits, PrefetchSkip, arrived_pages
from worker.storage import Storage
from worker.storage_belief import StorageBelief
from worker.tree import CacheKey, StoragePage, TreeCore


class ReadState(Enum):
    """How far a read has come."""

    PARKED = 0
    FETCHING = 1
    OVER = 2


@dataclass(slots=True, eq=False)
class StagedRead:
    """One request's read. Times are engine seconds.

    Attributes:
        matched_tokens: leading tokens that the device held at the start; the pages follow them.
        pages: of storage, in order.
        num_tokens: host slots that it needs, or holds; once it is over, what has come.
        deadline: given up, as far as it has come.
    """

    matched_tokens: int
    pages: tuple[StoragePage, ...]
    num_tokens: int
    deadline: float
    started_at: float = math.inf
    ends_at: float = math.inf
    state: ReadState = ReadState.PARKED

    @property
    def due_at(self) -> float:
        """When the request need not wait any longer."""
        return min(self.ends_at, self.deadline)

    @property
    def end(self) -> int:
        """Length of the prompt up to the last token that has come."""
        return self.matched_tokens + self.num_tokens


class StagedReads:
    """The reads of one rank, bounded by nine tenths of the host pool; the parked ones by the requests that wait."""

    def __init__(
        self,
        tree: TreeCore,
        storage: Storage,
        model: EngineModel,
        limits: PrefetchLimits,
        belief: StorageBelief,
    ) -> None:
        self._tree = tree
        self._storage = storage
        self._model = model
        self._limits = limits
        self._belief = belief
        self._parked: deque[StagedRead] = deque()
        self._fetching: list[StagedRead] = []
        self._link_free_at = 0.0
        self.held_tokens = 0
        self.counters = PrefetchCounters()

    def lookup_pages(self, key: CacheKey) -> list[StoragePage]:
        """Every page that ``issue`` may ask storage for; nothing is touched. O(tokens)."""
        if len(key.tokens) < self._limits.threshold:
            return []
        return self._tree.storage_pages(None, key)

    def issue(self, key: CacheKey, now: float) -> StagedRead | None:
        """Fetch what storage holds of ``key`` beyond the device.

        Returns:
            None where there is too little to fetch.
        """
        match = self._tree.match(key)
        rest = CacheKey(key.tokens[match.tokens :], key.extra_key, key.cache_salt)
        if len(rest.tokens) < self._limits.threshold:
            return None
        pages = self._tree.storage_pages(match.node, rest)
        digests = [page.digest for page in pages]
        num_pages = self._storage.exists(digests)
        self._belief.correct(digests, num_pages)
        size = self._tree.config.page_size
        if num_pages * size < self._limits.threshold:
            self.counters.skipped[PrefetchSkip.BELOW_THRESHOLD] += 1
            return None
        num_tokens = min(num_pages, self._capacity() // size) * size
        if num_tokens < self._limits.threshold:
            self.counters.skipped[PrefetchSkip.CAPACITY] += 1
            return None
        read = StagedRead(
            match.tokens,
            tuple(pages[: num_tokens // size]),
            num_tokens,
            self._limits.deadline(num_tokens, now),
        )
        self._parked.append(read)
        self.counters.issued += 1
        self.start(now)
        return read

    def start(self, now: float) -> None:
        """Begin the fetches that there is room for, oldest first. One link serves them in order."""
        while self._parked:
            read = self._parked[0]
            has_share = self.held_tokens + read.num_tokens <= self._capacity()
            if not has_share or not self._tree.reserve_host(read.num_tokens):
                return
            self._parked.popleft()
            self.held_tokens += read.num_tokens
            read.started_at = max(now, self._link_free_at)
            read.ends_at = read.started_at + self._model.fetch_s(read.num_tokens)
            self._link_free_at = read.ends_at
            read.state = ReadState.FETCHING
            self._fetching.append(read)

    def next_due(self) -> float | None:
        """Engine time at which the next read is due."""
        due = min((read.due_at for read in (*self._parked, *self._fetching)), default=math.inf)
        return due if due < math.inf else None

    def settle(self, now: float) -> bool:
        """End the reads that are due, and begin what waits; whether there was one."""
        due = [read for read in (*self._parked, *self._fetching) if read.due_at <= now]
        for read in due:
            self._settle(read, now)
        self.start(now)
        return bool(due)

    def spliceable(self, read: StagedRead, device_tokens: int, max_tokens: int) -> int:
        """Tokens of a read that can follow a match.

        Args:
            device_tokens: length of the match.
            max_tokens: leading tokens of the prompt that may come from the cache.

        Returns:
            0 where the match ends before what was fetched, or covers it.
        """
        if device_tokens < read.matched_tokens:
            return 0
        return max(0, min(read.end, max_tokens) - device_tokens)

    def drop(self, read: StagedRead) -> None:
        """Nobody uses what was read: its slots are given back."""
        self.counters.abandoned_tokens += read.num_tokens
        self._leave(read)
        self._give_back(read, read.num_tokens)

    def finish(self, read: StagedRead) -> None:
        """What was read is on the device."""
        self._give_back(read, read.num_tokens)

    def clear(self) -> None:
        """Forget all, after the tree has."""
        self._parked.clear()
        self._fetching.clear()
        self.held_tokens = 0

    def check(self) -> None:
        """Verify the bound, and who is where."""
        assert 0 <= self.held_tokens <= self._capacity(), "reads hold too much of the host pool"
        assert all(read.state is ReadState.PARKED for read in self._parked), "parked, and not"
        fetched = sum(read.num_tokens for read in self._fetching)
        assert fetched <= self.held_tokens, f"{fetched} fetched, {self.held_tokens} held"

    def _settle(self, read: StagedRead, now: float) -> None:
        num_arrived = 0
        if read.state is ReadState.FETCHING:
            num_arrived = arrived_pages(len(read.pages), read.started_at, read.ends_at, now)
        arrived = read.pages[:num_arrived]
        good = self._storage.fetch(arrived) if arrived else 0
        num_tokens = good * self._tree.config.page_size
        self._belief.add(page.digest for page in arrived[:good])
        self.counters.fetched_tokens += num_tokens
        self.counters.abandoned_tokens += read.num_tokens - num_tokens
        self._leave(read)
        self._give_back(read, read.num_tokens - num_tokens)

    def _leave(self, read: StagedRead) -> None:
        """It is over; a parked one has held nothing."""
        if read.state is ReadState.PARKED:
            self._parked.remove(read)
            read.num_tokens = 0
        elif read.state is ReadState.FETCHING:
            self._fetching.remove(read)
        read.state = ReadState.OVER

    def _give_back(self, read: StagedRead, num_tokens: int) -> None:
        num_tokens = min(num_tokens, read.num_tokens)
        self._tree.release_host(num_tokens)
        self.held_tokens -= num_tokens
        read.num_tokens -= num_tokens

    def _capacity(self) -> int:
        host = self._tree.host
        return 0 if host is None else host.capacity * 9 // 10
