"""Who holds what, over the whole fleet: the one owner of every claim.

Streams write here (``apply``, ``forget``, ``record_loss``, ``set_trust``), the planner asks and tells
(``match``, ``predict``, ``withdraw``, ``observe``, ``report``), the debug pages look. Pure: time comes in as ``now``,
monotonic seconds, and nothing is awaited. Calls for ranks of workers it does not know are harmless, so nothing
queued brings a removed worker back; batches among them are counted.
"""

from collections import Counter
from collections.abc import Sequence

from indexer.actions import ForgetReason, LossCause
from indexer.block_index import BlockIndex
from indexer.dump_format import LoadSkip, RankLine
from indexer.eviction import Holder, evict_oldest
from indexer.finding_board import FindingBoard
from indexer.findings import Finding
from indexer.fleet_share import FleetShare
from indexer.identity import ClaimSkip
from indexer.index_size import index_size
from indexer.limits import IndexLimits
from indexer.lookups import LookupTable
from indexer.match import Prompt, RankMatch
from indexer.pool_book import PoolState
from indexer.prefix_query import HeldPrefix, PrefixQuery, answer
from indexer.rank_book import RankBook
from indexer.rank_load import LOADABLE, RankLoad
from indexer.rank_matches import rank_matches
from indexer.rank_state import IndexStats, RankState
from indexer.rank_turns import RankTurns
from indexer.same_cache import is_same_cache
from indexer.snapshots import RankSnapshot
from indexer.storage_pools import StoragePools
from indexer.storage_rules import StorageRules
from indexer.stream_status import ReplayTrouble
from indexer.trust import Trust
from protocol import (
    EngineHash,
    EventBatch,
    PoolName,
    Rank,
    StoragePool,
    Tier,
    WorkerId,
    WorkerSpec,
    tier_of,
)

DEFAULT_INDEX_LIMITS = IndexLimits()
DEFAULT_STORAGE_RULES = StorageRules()
_SWEPT_AT_ONCE = 4_096
_EVICTED_AT_ONCE = 1_024
_TICKED_AT_ONCE = 256


class FleetIndex:
    """Claims, trust and findings of every rank.

    Attributes:
        pools: what storage pools hold, to be dumped and loaded.
    """

    def __init__(
        self,
        limits: IndexLimits = DEFAULT_INDEX_LIMITS,
        storage: StorageRules = DEFAULT_STORAGE_RULES,
    ) -> None:
        self._limits = limits
        self._share = FleetShare(limits.full_ranks)
        self._blocks = BlockIndex(self._share)
        self._specs: dict[WorkerId, WorkerSpec] = {}
        self._books: dict[Rank, RankBook] = {}
        self.pools = StoragePools(self._blocks, limits, storage, self._drop_lookups)
        self._lookups = LookupTable(self._books, self.pools)
        self._board = FindingBoard(limits)
        self._turns = RankTurns(_TICKED_AT_ONCE)
        self._skips: Counter[ClaimSkip] = Counter()

    # Membership

    def add_worker(self, spec: WorkerSpec, now: float, *, is_heard: bool = False) -> None:
        """Keep books for a worker's ranks.

        What is the same cache (`is_same_cache`) keeps its claims under the new names; any other starts
        anew, unless ``is_heard``: what is claimed was heard of it.
        """
        before = self._specs.get(spec.worker)
        if before is not None and (is_heard or is_same_cache(before, spec)):
            self._specs[spec.worker] = spec
            for book in self._books.values():
                if book.rank.worker == spec.worker:
                    book.rename(spec)
                    self.pools.settle(book)
            self._share.num_holders = self._num_holders
            return
        self.remove_worker(spec.worker)
        self._specs[spec.worker] = spec
        for rank in spec.ranks:
            self._open_book(rank, spec, now)

    def remove_worker(self, worker: WorkerId) -> None:
        """Drop a worker with every claim of its ranks; O(ranks). Unknown workers are ignored."""
        if self._specs.pop(worker, None) is None:
            return
        for rank in [rank for rank in self._books if rank.worker == worker]:
            book = self._books.pop(rank)
            self._lookups.drop()
            self._skips.update(book.ledger.skips)
            self.pools.detach(book)
            book.close()
        self._share.num_holders = self._num_holders

    # What streams tell

    def apply(self, rank: Rank, batch: EventBatch, now: float, seq: int | None = None) -> None:
        """The rank's next batch in order, or a part of it. O(blocks and tokens in it).

        Args:
            seq: the batch's number, with its last part.
        """
        book = self._books.get(rank) or self._book(rank, now)
        if book is not None:
            book.apply(batch, now, seq)
        elif self.pools.has(rank.worker):
            self.pools.apply(rank.worker, batch, now, seq)
        else:
            self._skips[ClaimSkip.UNKNOWN_WORKER] += 1
        if self._blocks.clock.num_held > self._limits.claims:
            self._evict(now)

    def forget(self, rank: Rank, reason: ForgetReason, now: float) -> None:
        """Drop every claim of the rank, observed and predicted ones too; O(1) in the claims."""
        book = self._books.get(rank)
        if book is not None:
            book.forget(reason, now)
        else:
            self.pools.forget(rank.worker, now)

    def record_loss(self, rank: Rank, now: float, cause: LossCause = LossCause.NO_REPLAY) -> None:
        """Batches are lost for good: the rank's older claims are doubtful until confirmed."""
        book = self._books.get(rank)
        if book is not None:
            book.record_loss(now, cause)
        else:
            self.pools.record_loss(rank.worker, now)

    def wants_rebuild(self, rank: Rank, now: float) -> bool:
        """Whether the rank was purged, so that a replay from 0 would bring back what it truly holds."""
        book = self._books.get(rank)
        return book is not None and book.wants_rebuild(now)

    def shrink(self, rank: Rank, medium: str, max_blocks: int, now: float) -> bool:
        """Drop up to so many blocks of a medium that is about to be cleared; O(``max_blocks``).

        Returns:
            Whether no more than so many are left.
        """
        book, tier = self._books.get(rank), tier_of(medium)
        if tier is None:
            return True
        if book is None:
            return self.pools.shrink(rank.worker, tier, max_blocks, now)
        return book.ledger.shrink(tier, max_blocks, now)

    def set_trust(self, rank: Rank, trust: Trust, now: float) -> None:
        """How far the rank's stream can be believed from here on."""
        book = self._book(rank, now)
        if book is not None:
            book.set_trust(trust)
        else:
            self.pools.set_trust(rank.worker, trust)

    def set_connected(self, rank: Rank, now: float, *, is_connected: bool | None) -> None:
        """Whether the rank's event socket is connected. To be told again and again.

        Args:
            is_connected: None where that says nothing, because the worker as a whole is down.
        """
        book = self._books.get(rank)
        if book is not None:
            book.set_connected(now, is_connected=is_connected)

    def set_replay_trouble(self, rank: Rank, trouble: ReplayTrouble | None) -> None:
        """Replays of the rank's publisher that came to nothing, in a row. To be told again and again."""
        book = self._books.get(rank)
        if book is not None:
            book.replay_trouble = trouble

    # What the planner asks and tells

    def match(self, prompt: Prompt, ranks: Sequence[Rank], now: float) -> list[RankMatch]:
        """The longest run of leading blocks that each rank holds.

        Each rank is looked up at the block sizes its own events use (the advertised one before the
        first), and the longest match in tokens counts. O(blocks + changes of holders + ranks).

        Args:
            ranks: each at most once.

        Returns:
            One match a rank, in the same order; an empty one where nothing is known.
        """
        return rank_matches(self._lookups.of(ranks), self._blocks, prompt, now)

    def query(self, query: PrefixQuery, now: float) -> list[HeldPrefix]:
        """How much of a prefix each rank that serves its model holds, by rank. O(blocks + ranks × changes)."""
        return answer(query, self._blocks, self._books.values(), self.pools.shared, now)

    def predict(self, rank: Rank, prompt: Prompt, now: float) -> None:
        """The prompt was dispatched to the rank: it will soon hold it. O(blocks)."""
        book = self._books.get(rank)
        if book is not None:
            book.dispatch(prompt, now)

    def withdraw(self, rank: Rank, prompt: Prompt, under_way: Sequence[Prompt]) -> None:
        """A prompt that was dispatched came to nothing: predict its blocks no longer.

        O(blocks + prompts under way × log blocks).

        Args:
            under_way: prompts of the rank's other requests, whose blocks stay predicted.
        """
        book = self._books.get(rank)
        if book is not None:
            book.withdraw(prompt, under_way)

    def observe(self, rank: Rank, prompt: Prompt, now: float) -> None:
        """The rank began to answer the prompt: it holds the full blocks on GPU. O(blocks)."""
        book = self._books.get(rank)
        if book is not None:
            book.observe(prompt, now)

    def report(
        self,
        rank: Rank,
        prompt: Prompt,
        cached_tokens: int | None,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
    ) -> None:
        """The answer is complete; the engine reported this many cached tokens, or nothing (None).

        Args:
            at_decision: what ``match`` said of the rank when the request was planned.
            decided_at: when that was.
        """
        book = self._books.get(rank)
        if book is not None:
            book.report(prompt, cached_tokens, at_decision, decided_at, now)
            if cached_tokens is not None:
                self.pools.weigh(book, prompt, cached_tokens, at_decision, decided_at)

    def trust(self, rank: Rank, now: float) -> Trust:
        """How far claims about the rank can be believed; NONE for ranks that are not known."""
        book = self._books.get(rank)
        return Trust.NONE if book is None else book.trust(now)

    def tick(self, now: float) -> None:
        """Time passes: expire evidence, predictions and doubt. About four times a second.

        O(256 ranks), and O(ranks) each time that every rank has had its turn.
        """
        self.sweep(_SWEPT_AT_ONCE)
        for book in self._turns.take(self._books):
            book.tick(now)
        self.pools.tick(now)
        if self._turns.is_round_over:
            self._board.look(self._books.values(), now)

    def sweep(self, max_blocks: int) -> bool:
        """Clean up behind claims that were dropped at once; O(``max_blocks``). True when all is done."""
        return self._blocks.sweep(max_blocks)

    # What debug pages and metrics show

    def rank_states(self, now: float) -> list[RankState]:
        """A snapshot a rank, in order of rank."""
        return [self._books[rank].state(now) for rank in sorted(self._books)]

    def pool_states(self) -> list[PoolState]:
        """A snapshot a storage pool that a rank is attached to."""
        return self.pools.states()

    def pools_named(self, name: PoolName) -> frozenset[StoragePool]:
        """The storage pools behind a name: one for each model and layout."""
        return self.pools.named(name)

    def findings(self, now: float) -> list[Finding]:
        """Every gap that is there now, with its evidence."""
        for book in self._books.values():
            book.audit.settle(now)
        return self._board.look(self._books.values(), now)

    def stats(self) -> IndexStats:
        """Totals of the fleet."""
        ledgers = [book.ledger for book in self._books.values()]
        return IndexStats(
            workers=len(self._specs),
            ranks=len(self._books),
            key_spaces=self._blocks.num_spaces,
            blocks=self._blocks.num_blocks,
            claims={tier: sum(ledger.num_claims(tier) for ledger in ledgers) for tier in Tier},
            held=self._blocks.clock.num_held,
            max_held=self._limits.claims,
            unswept=self._blocks.retired.num_blocks,
            observed=sum(len(ledger.claims.observed) for ledger in ledgers),
            predicted=sum(len(ledger.claims.predicted) for ledger in ledgers),
            doubtful=sum(ledger.claims.num_doubtful for ledger in ledgers),
            orphans=sum(ledger.num_orphans for ledger in ledgers),
            skips=sum((ledger.skips for ledger in ledgers), self._skips.copy()),
        )

    def size_bytes(self) -> int:
        """Memory of the index, estimated from its tables. O(key spaces and ranks)."""
        return index_size(self._blocks, (one.ledger for one in self._holders()))

    def snapshot(self, rank: Rank, now: float) -> RankSnapshot | None:
        """All that is claimed of a rank at this moment; None where it is not known. O(its blocks)."""
        book = self._books.get(rank)
        return None if book is None else book.snapshot(self._blocks.spaces(), now)

    def begin_load(self, line: RankLine, now: float) -> RankLoad | LoadSkip:
        """Fill the books of a rank from a dump, or say why they are not to be filled."""
        rank = Rank(WorkerId(line.worker), line.dp_rank)
        spec = self._specs.get(rank.worker)
        if spec is None:
            return LoadSkip.UNKNOWN_WORKER
        is_other = (spec.url, spec.model, spec.engine) != (line.url, line.model, line.engine)
        if is_other or (line.version is not None and spec.version not in (None, line.version)):
            return LoadSkip.OTHER_WORKER
        if line.trust not in LOADABLE or line.seq is None:
            return LoadSkip.NOT_TRUSTED
        book = self._books.get(rank) or self._open_book(rank, spec, now)
        if book.ledger.num_held or book.last_seq is not None:  # evidence alone is no obstacle
            return LoadSkip.KNOWN_ALREADY
        return RankLoad(book, self._blocks, line, self._limits.claims, now)

    def is_loading(self, load: RankLoad) -> bool:
        """Whether a load that has begun may go on: its rank is still there, and was not forgotten since."""
        return self._books.get(load.book.rank) is load.book and load.is_whole

    def mark(self, rank: Rank) -> int | None:
        """Number of the last batch of the rank that its claims rest on as a whole; None before the first."""
        book = self._books.get(rank)
        return None if book is None else book.last_seq

    def residency(self, rank: Rank) -> dict[Tier, list[EngineHash]]:
        """Announced claims of a rank by tier, as engine hashes; empty where it is not known."""
        book = self._books.get(rank)
        return {tier: [] if book is None else book.ledger.residency(tier) for tier in Tier}

    def check(self) -> None:
        """Verify every invariant; O(ranks × blocks). For tests."""
        self._blocks.check()
        assert {rank.worker for rank in self._books} == self._specs.keys()
        holders = self._holders()
        held = sum(book.ledger.num_held for book in holders)
        assert held == self._blocks.clock.num_held <= self._limits.claims
        slots = [book.ledger.claims.slot for book in holders]
        assert len(slots) == len(set(slots)), "two ranks or pools share a slot"
        self._lookups.check()
        assert self._share.num_holders == len(holders)
        for book in self._books.values():
            book.check()
        self.pools.check(self._books.values())

    def _holders(self) -> list[Holder]:
        return [*self._books.values(), *self.pools.books]

    @property
    def _num_holders(self) -> int:
        return len(self._books) + self.pools.num_books

    def _drop_lookups(self) -> None:
        self._lookups.drop()

    def _evict(self, now: float) -> None:
        """Make room for some claims more."""
        limit = self._limits.claims
        room = min(limit // 64, _EVICTED_AT_ONCE)
        excess = self._blocks.clock.num_held - limit + room
        evict_oldest(self._holders(), excess, self._limits.age_grain, now)

    def _book(self, rank: Rank, now: float) -> RankBook | None:
        """The rank's book, opened where its worker has more ranks than it advertises."""
        book = self._books.get(rank)
        spec = self._specs.get(rank.worker)
        if book is None and spec is not None:
            book = self._open_book(rank, spec, now)
        return book

    def _open_book(self, rank: Rank, spec: WorkerSpec, now: float) -> RankBook:
        book = RankBook(rank, spec, self._blocks, self._limits, now, self._lookups.drop)
        self._books[rank] = book
        self._lookups.drop()
        self.pools.settle(book)
        self._share.num_holders = self._num_holders
        return book
