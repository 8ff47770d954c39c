"""L3 in another process: what the engine asks for was fetched before, what it stores is written behind.

The engine takes no time of its own, so it cannot wait for a network. Before a request enters the engine, the
pages of its prompt that the store holds are looked up and kept at hand until the request leaves; ``exists``
and ``fetch`` answer from these. ``put`` only queues.

    at_hand(pages) ── threads ─▶ client.held, client.get ─▶ pages at hand ─▶ exists, fetch
    put(pages) ─▶ unwritten pages ── run() ── threads ─▶ client.put

A store that is slow or gone costs a request ``patience_s`` and its L3 hits, and the worker nothing else.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from worker.call_threads import BusyError, CallThreads
from worker.storage import StorageCounters, count_end_of_run, encode_page
from worker.tree import StoragePage

T = TypeVar("T")


class StoreError(OSError):
    """The store refused, or did not answer."""


class PageClient(Protocol):
    """A store elsewhere. Every call blocks, comes from any thread, and may raise ``StoreError``."""

    def held(self, keys: Sequence[str]) -> list[bool]:
        """Which of them it holds."""
        ...

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Their contents; None for what is not there."""
        ...

    def put(self, keys: Sequence[str], contents: Sequence[bytes]) -> list[bool]:
        """Write them; which are there afterwards."""
        ...

    def close(self) -> None:
        """Leave the store."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """Bounds of one handle.

    Attributes:
        patience_s: wall seconds that a request waits for its lookup; then it goes without.
        batch_pages: in one call.
        num_threads, max_lookups: calls at a time, and waiting; further lookups are left out.
        max_pages_at_hand: a lookup that begins beyond it is left out.
        max_unwritten_pages: pages put beyond it are lost, and counted as ``failed``.
    """

    patience_s: float = 1.0
    batch_pages: int = 128
    num_threads: int = 4
    max_lookups: int = 64
    max_pages_at_hand: int = 1 << 18
    max_unwritten_pages: int = 1 << 14


@dataclass(slots=True)
class _Copy:
    """A page at hand, for as many requests as brought it."""

    content: bytes
    num_requests: int = 0


class RemoteStorage:
    """A ``Storage`` over a ``PageClient``. One event loop owns it; only the client is called from threads."""

    def __init__(self, client: PageClient, limits: RemoteLimits | None = None) -> None:
        self._client = client
        self._limits = limits or RemoteLimits()
        self._counters = StorageCounters()
        self._at_hand: dict[bytes, _Copy] = {}
        self._unwritten: deque[StoragePage] = deque()
        self._has_unwritten = asyncio.Event()
        self._threads = CallThreads(
            "storage", self._limits.num_threads + 1, self._limits.max_lookups
        )

    @property
    def counters(self) -> StorageCounters:
        """What this handle did; other workers count for themselves."""
        return self._counters

    def __len__(self) -> int:
        """Pages at hand."""
        return len(self._at_hand)

    def exists(self, digests: Sequence[bytes]) -> int:
        """Length of the leading run at hand. O(run)."""
        return next(
            (i for i, digest in enumerate(digests) if digest not in self._at_hand), len(digests)
        )

    def put(self, pages: Sequence[StoragePage]) -> int:
        """Queue pages; returns how many were taken. O(pages)."""
        taken = pages[: self._limits.max_unwritten_pages - len(self._unwritten)]
        self._counters.failed += len(pages) - len(taken)
        self._unwritten.extend(taken)
        if taken:
            self._has_unwritten.set()
        return len(taken)

    def fetch(self, pages: Sequence[StoragePage]) -> int:
        """Length of the leading run at hand with the expected content. O(run)."""
        for index, page in enumerate(pages):
            copy = self._at_hand.get(page.digest)
            if copy is None or copy.content != encode_page(page):
                count_end_of_run(self._counters, index, is_there=copy is not None)
                return index
        self._counters.hit += len(pages)
        return len(pages)

    @asynccontextmanager
    async def at_hand(self, pages: Sequence[StoragePage]) -> AsyncIterator[None]:
        """Look pages up, and keep the leading run of them until the end."""
        contents = await self._looked_up(pages)
        found = [page.digest for page in pages[: len(contents)]]
        for digest, content in zip(found, contents, strict=True):
            copy = self._at_hand.setdefault(digest, _Copy(content))
            copy.content = content
            copy.num_requests += 1
        try:
            yield
        finally:
            for digest in found:
                self._let_go(digest)

    async def run(self) -> None:
        """Write what was put, batch by batch, until cancelled."""
        while True:
            await self._has_unwritten.wait()
            size = min(len(self._unwritten), self._limits.batch_pages)
            await self._write([self._unwritten.popleft() for _ in range(size)])
            if not self._unwritten:
                self._has_unwritten.clear()

    async def close(self) -> None:
        """Leave the store, if that takes no longer than ``patience_s``; what is unwritten is lost."""
        self._counters.failed += len(self._unwritten)
        self._unwritten.clear()
        await self._answer(self._client.close)
        self._threads.close()

    def check(self) -> None:
        """Verify the bounds, and that nothing is kept for nobody."""
        assert len(self._unwritten) <= self._limits.max_unwritten_pages, "too much is unwritten"
        assert all(copy.num_requests > 0 for copy in self._at_hand.values()), "kept for nobody"

    def _let_go(self, digest: bytes) -> None:
        copy = self._at_hand[digest]
        copy.num_requests -= 1
        if not copy.num_requests:
            del self._at_hand[digest]

    async def _looked_up(self, pages: Sequence[StoragePage]) -> list[bytes]:
        if not pages:
            return []
        if len(self._at_hand) >= self._limits.max_pages_at_hand:
            self._counters.unanswered += 1
            return []
        keys = [page.digest.hex() for page in pages]
        return await self._answer(partial(_run, self._client, keys, self._limits.batch_pages)) or []

    async def _write(self, pages: Sequence[StoragePage]) -> None:
        keys = [page.digest.hex() for page in pages]
        contents = [encode_page(page) for page in pages]
        try:
            known, stored = await self._threads.call(
                partial(_put_unknown, self._client, keys, contents)
            )
        except (StoreError, BusyError):
            self._counters.failed += len(pages)
            return
        self._counters.put_known += known
        self._counters.put += stored
        self._counters.failed += len(pages) - known - stored

    async def _answer(self, work: Callable[[], T]) -> T | None:
        """What the store answers in time; None, counted, where it does not."""
        try:
            async with asyncio.timeout(self._limits.patience_s):
                return await self._threads.call(work)
        except (StoreError, BusyError, TimeoutError):
            self._counters.unanswered += 1
            return None


def _run(client: PageClient, keys: Sequence[str], batch_pages: int) -> list[bytes]:
    """Contents of the leading run that the store holds; asks on while whole batches are there."""
    contents: list[bytes] = []
    for start in range(0, len(keys), batch_pages):
        batch = keys[start : start + batch_pages]
        held = client.held(batch)
        batch = batch[: held.index(False) if False in held else len(held)]
        for content in client.get(batch) if batch else ():
            if content is None:
                return contents
            contents.append(content)
        if len(contents) < start + batch_pages:
            break
    return contents


def _put_unknown(
    client: PageClient, keys: Sequence[str], contents: Sequence[bytes]
) -> tuple[int, int]:
    """(pages that were there, pages that are there now and were not)."""
    held = client.held(keys)
    new = [index for index, is_held in enumerate(held) if not is_held]
    stored = client.put([keys[i] for i in new], [contents[i] for i in new]) if new else []
    return len(keys) - len(new), sum(stored)
