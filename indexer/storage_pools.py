"""All storage pools of the fleet: a book for each that a rank is attached to."""

from collections.abc import Callable, Iterable, Sequence, Set

from indexer.block_index import BlockIndex
from indexer.dump_format import LoadSkip, PoolLine
from indexer.limits import IndexLimits
from indexer.match import Prompt, RankMatch
from indexer.pool_book import PoolBook, PoolState
from indexer.pool_load import PoolLoad
from indexer.prefix_walk import SharedBits
from indexer.rank_book import RankBook
from indexer.snapshots import PoolSnapshot
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import EventBatch, PoolName, StoragePool, Tier, WorkerId, pool_key, pool_source


class StoragePools:
    """Pools by value; no more than there are ranks. A pool that nobody is attached to is forgotten.

    Args:
        on_lookups: called whenever ranks are to be looked up in another way.
    """

    def __init__(
        self,
        index: BlockIndex,
        limits: IndexLimits,
        rules: StorageRules,
        on_lookups: Callable[[], None],
    ) -> None:
        self._index = index
        self._limits = limits
        self._rules = rules
        self._on_lookups = on_lookups
        self._pools: dict[StoragePool, PoolBook] = {}
        self._by_rank: dict[RankBook, PoolBook] = {}
        self._by_source: dict[WorkerId, list[PoolBook]] = {}  # none of them empty

    @property
    def books(self) -> Iterable[PoolBook]:
        """Every pool."""
        return self._pools.values()

    @property
    def num_books(self) -> int:
        """How many pools there are."""
        return len(self._pools)

    # Membership

    def settle(self, book: RankBook) -> None:
        """Attach a rank to the pool that its worker shares by what is known now, to no other."""
        use = book.spec.storage
        pool = None if use is None or not use.pool.is_shared else use.pool
        before = self._by_rank.get(book)
        if before is not None and before.pool != pool:
            self.detach(book)
        if pool is None:
            return
        found = self._pools.get(pool) or self._open(pool)
        self._by_rank[book] = found
        found.attach(book)

    def detach(self, book: RankBook) -> None:
        """The rank goes."""
        found = self._by_rank.pop(book, None)
        if found is None:
            return
        found.detach(book)
        if not found.ranks:
            self._close(found)

    def named(self, name: PoolName) -> frozenset[StoragePool]:
        """The pools behind a name: one for each model and layout."""
        return frozenset(book.pool for book in self._by_source.get(pool_source(name), ()))

    # What streams tell, of pools by the id of their source

    def has(self, source: WorkerId) -> bool:
        """Whether events of this source are of a pool."""
        return source in self._by_source

    def apply(
        self, source: WorkerId, batch: EventBatch, now: float, seq: int | None = None
    ) -> None:
        """The next events of a pool; ``seq`` comes with the last part of a batch."""
        books = self._by_source.get(source, ())
        for book in books:
            book.apply(batch, now, seq, is_only=len(books) == 1)

    def forget(self, source: WorkerId, now: float) -> None:
        """Drop every claim of a pool."""
        for book in self._by_source.get(source, ()):
            book.forget(now)

    def record_loss(self, source: WorkerId, now: float) -> None:
        """Events of a pool are lost for good."""
        for book in self._by_source.get(source, ()):
            book.record_loss(now)

    def set_trust(self, source: WorkerId, trust: Trust) -> None:
        """How far the events of a pool can be believed."""
        for book in self._by_source.get(source, ()):
            book.trust = trust

    def shrink(self, source: WorkerId, tier: Tier, max_blocks: int, now: float) -> bool:
        """Drop up to so many blocks of a medium; whether no more than so many are left of it."""
        books = self._by_source.get(source, ())
        return all(book.ledger.shrink(tier, max_blocks, now) for book in books)

    # What a dump tells, of pools by their keys: several with one name are told together

    def dump_keys(self) -> list[WorkerId]:
        """Each pool's key, in order: the id of its source, as if it had one of its own where it has no name."""
        return sorted({pool_key(pool) for pool in self._pools})

    def snapshots(self, key: WorkerId) -> list[PoolSnapshot]:
        """All that is known of the pools of a key at this moment. O(blocks)."""
        spaces = self._index.spaces()
        found = [book for pool, book in self._pools.items() if pool_key(pool) == key]
        return [book.snapshot(spaces) for book in found]

    def begin_load(self, line: PoolLine, now: float, *, takes_events: bool) -> PoolLoad | LoadSkip:
        """Fill the books of a pool from a dump, or say why they are not to be filled.

        Args:
            takes_events: what its own events have told, too, if none of them was heard here.
        """
        book = self._pools.get(line.pool)
        if book is None:
            return LoadSkip.UNKNOWN_POOL
        return PoolLoad(
            book, self._index, line, self._limits.claims, now, takes_events=takes_events
        )

    def is_loading(self, load: PoolLoad) -> bool:
        """Whether a load that has begun may go on."""
        return self._pools.get(load.book.pool) is load.book and load.is_whole

    def is_restored(self, source: WorkerId, seq: int, pools: Set[StoragePool]) -> bool:
        """Whether these are all pools of a source, and what they hold rests on its events up to that number."""
        books = self._by_source.get(source, ())
        return {book.pool for book in books} == pools and all(b.last_seq == seq for b in books)

    # What the index asks and tells

    def weigh(
        self,
        book: RankBook,
        prompt: Prompt,
        cached_tokens: int,
        at_decision: RankMatch,
        decided_at: float,
    ) -> None:
        """Hold a report against what was inferred, if the decision rested on that."""
        found = self._by_rank.get(book)
        if found is None or at_decision.storage_source is not StorageSource.INFERRED:
            return
        blocks = book.blocks(prompt)
        if blocks.block_size == at_decision.block_size:
            cached = cached_tokens // blocks.block_size
            found.weigh(blocks, cached, at_decision, decided_at, book.spec.fetch_threshold)

    def shared(self, books: Sequence[RankBook]) -> tuple[SharedBits, ...]:
        """The pools that matter to a lookup of these ranks."""
        slots: dict[PoolBook, list[int]] = {}
        for book in books if self._pools else ():
            pool = self._by_rank.get(book)
            if pool is not None:
                slots.setdefault(pool, []).append(book.slot)
        found = [pool.shared_bits(attached) for pool, attached in slots.items()]
        return tuple(bits for bits in found if bits is not None)

    def tick(self, now: float) -> None:
        """Expire what is too old."""
        for book in self._pools.values():
            book.tick(now)

    def states(self) -> list[PoolState]:
        """A snapshot a pool, in order of label."""
        books = sorted(self._pools.values(), key=lambda book: book.pool.label)
        return [book.state() for book in books]

    def check(self, books: Iterable[RankBook]) -> None:
        """Verify that exactly the ranks that share a pool are attached to it, and every pool."""
        shared = {book: book.spec.storage.pool for book in books if book.spec.storage is not None}
        expected = {book: pool for book, pool in shared.items() if pool.is_shared}
        assert {book: found.pool for book, found in self._by_rank.items()} == expected
        listed = [book for found in self._by_source.values() for book in found]
        assert all(self._by_source.values()), "a source of no pool"
        assert set(listed) == {book for book in self._pools.values() if book.pool.name is not None}
        for pool in self._pools.values():
            own = sorted(book.rank for book, found in self._by_rank.items() if found is pool)
            assert own, f"nobody is attached: {pool.pool}"
            assert pool.ranks == tuple(own)
            pool.check()

    def _open(self, pool: StoragePool) -> PoolBook:
        book = PoolBook(pool, self._index, self._limits, self._rules, self._on_lookups)
        self._pools[pool] = book
        if pool.name is not None:
            self._by_source.setdefault(pool_source(pool.name), []).append(book)
        return book

    def _close(self, book: PoolBook) -> None:
        del self._pools[book.pool]
        if book.pool.name is not None:
            source = pool_source(book.pool.name)
            self._by_source[source].remove(book)
            if not self._by_source[source]:
                del self._by_source[source]
        book.close()
