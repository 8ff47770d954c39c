"""Everything the index knows of one storage pool: what it holds, and which ranks can fetch it.

A pool has a slot of its own in the block index, so what it holds costs one bit a block however many ranks are
attached; a lookup spreads it over their slots (`prefix_walk.with_shared`). Three sources, the firmest first:

    announced     STORAGE stores of attached ranks. They stay claims of the rank that announced them, and count for
                  every attached rank as long as one of them claims the block. Without a pool they are the rank's own
    pool events   the ledger's HOST and STORAGE tiers: the pool's media. Mostly without tokens: blocks are named by
                  the hashes that attached ranks publish
    inferred      the ledger's observed claims: HOST stores of ranks that write through. They age, and go when a
                  report contradicts them
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from indexer.block_index import BlockIndex, Ref, Space
from indexer.identity import ClaimSkip
from indexer.ledger import RankLedger
from indexer.limits import IndexLimits
from indexer.match import RankMatch
from indexer.prefix_walk import SharedBits
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_book import RankBook
from indexer.remembered import Remembered
from indexer.slot_bits import OBSERVED, STORAGE, STRIDE, slots_mask
from indexer.snapshots import PoolSnapshot
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    EngineHash,
    EventBatch,
    KvEvent,
    Rank,
    StoragePool,
    Tier,
    WorkerSpec,
    tier_of,
)

_POOL_MEDIUM = "STORAGE"
_RESTORABLE = frozenset((Trust.EXACT, Trust.JOINED, Trust.DEGRADED))
_NO_MODELS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PoolState:
    """A snapshot of one pool.

    Attributes:
        ranks: attached ones, in order.
        blocks: by source; of announced ones each rank's claims count.
        trust: of its own events; NONE where it has none.
        unnamed: blocks that its events name by hashes which no attached rank has published.
        contradicted: inferred blocks dropped because a report fell short of them.
        skips: events and blocks that made no claim, by reason.
    """

    pool: StoragePool
    ranks: tuple[Rank, ...]
    blocks: dict[StorageSource, int]
    trust: Trust
    unnamed: int
    contradicted: int
    skips: dict[ClaimSkip, int]


class PoolBook:
    """One pool.

    Args:
        on_lookups: called whenever ranks are to be looked up in another way.

    Attributes:
        num_contradicted: inferred blocks dropped because a report fell short of them.
        num_resets: how often all was dropped.
        last_seq: number of the last batch of its own events that is applied as a whole; None before the first.
    """

    def __init__(
        self,
        pool: StoragePool,
        index: BlockIndex,
        limits: IndexLimits,
        rules: StorageRules,
        on_lookups: Callable[[], None],
    ) -> None:
        self.pool = pool
        self.trust = Trust.NONE
        self.num_contradicted = 0
        self.num_resets = 0
        self.last_seq: int | None = None
        limits = replace(limits, observed=rules.max_inferred)
        self.ledger = RankLedger(index, pool.model, limits, clears_are_total=True)
        self._index = index
        self._limits = limits
        self._rules = rules
        self._on_lookups = on_lookups
        self._slot = self.ledger.claims.slot
        self._books: dict[Rank, RankBook] = {}
        self._models = _NO_MODELS
        self._speaks = pool.name in rules.speaking
        self._is_live = self._speaks
        self._written: list[Ref] = []
        self._names: Remembered[EngineHash, Ref] = Remembered(limits.pool_names, index.share)
        if self._speaks:
            self.ledger.claims.other_names = self._names

    # Membership

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The attached ranks, in order."""
        return tuple(sorted(self._books))

    def attach(self, book: RankBook) -> None:
        """The rank writes to the pool and fetches from it."""
        use = book.spec.storage
        assert use is not None
        assert use.pool == self.pool
        infers = self._rules.infers and use.writes_through
        book.ledger.claims.witness = _Attached(self, infers=infers)
        self._books[book.rank] = book
        self._is_live = self._is_live or infers or bool(book.ledger.num_claims(Tier.STORAGE))
        self._settle_models()
        self._on_lookups()

    def detach(self, book: RankBook) -> None:
        """The rank is attached no longer."""
        book.ledger.claims.witness = None
        del self._books[book.rank]
        self._settle_models()
        self._on_lookups()

    # What ranks and the pool itself say

    def named(self, hashes: Sequence[EngineHash], refs: Sequence[Ref]) -> None:
        """An attached rank published these hashes of these blocks. O(blocks)."""
        if not self._speaks:
            return
        self._names.young.update(zip(hashes, refs, strict=False))
        self._names.turn()
        for group in self.ledger.groups.values():
            waiting = group.unnamed
            if waiting:
                for block_hash, ref in zip(hashes, refs, strict=False):
                    if block_hash in waiting:
                        group.name(block_hash, ref)

    def announced(self) -> None:
        """An attached rank announced blocks in storage."""
        if not self._is_live:
            self._is_live = True
            self._on_lookups()

    def written_through(self, refs: Sequence[Ref]) -> None:
        """An attached rank copied the blocks to host memory, and copies them on to the pool."""
        self._written += refs

    def holds(self, ref: Ref) -> bool:
        """Whether a block is in the pool, on whatever ground. O(attached ranks)."""
        if not self._is_live:
            return False
        if self._index.bits(ref, self._slot):
            return True
        return any(self._index.bits(ref, book.slot) & STORAGE for book in self._books.values())

    def infer(self, now: float) -> None:
        """Infer the copies of what was written through. O(blocks); O(1) where there are none."""
        if not self._written:
            return
        refs = [ref for ref in self._written if self._index.space_of(ref) is not None]
        self._written.clear()
        self.ledger.claims.observed.mark_any(refs, now)

    def apply(
        self, batch: EventBatch, now: float, seq: int | None = None, *, is_only: bool
    ) -> None:
        """The pool's next events. O(blocks and tokens in it).

        Args:
            seq: the batch's number, with its last part.
            is_only: no other model or layout is behind the same name; else events must name their model.
        """
        self.last_seq = self.last_seq if seq is None else seq
        self.ledger.apply(self._own(batch.events, is_only=is_only), now)
        self._settle_slot()

    def forget(self, now: float) -> None:
        """Drop every claim, inferred ones too: the pool is a new one, or nobody listens to it."""
        self.num_resets += 1
        self.last_seq = None
        self.ledger.forget(now)
        self._settle_slot()

    def record_loss(self, now: float) -> None:
        """Events are lost for good: what the pool said before is doubtful, and goes unless confirmed."""
        self.ledger.doubt(now + self._limits.doubt_ttl_s)

    def note_evicted(self, num_blocks: int) -> None:
        """So many claims were given up for want of room."""
        self.ledger.skips[ClaimSkip.EVICTED] += num_blocks

    # What requests say

    def weigh(
        self,
        blocks: PromptBlocks,
        cached: int,
        at_decision: RankMatch,
        decided_at: float,
        threshold: int,
    ) -> None:
        """Drop inferred copies that a report contradicts, but for those inferred since. O(blocks).

        It does where all that the rank held by itself was reused, and of what was to be fetched at least a
        block was not. One block short is none: a draft model gives up the last hit.

        Args:
            cached: leading blocks that the engine reports as reused.
            threshold: tokens; less is not fetched.
        """
        stored = at_decision.storage_blocks
        local = at_decision.matched_blocks - stored
        expected = min(at_decision.matched_blocks, blocks.num_reusable)
        if stored * blocks.block_size < threshold or cached >= expected - 1 or cached < local - 1:
            return
        space = self._index.find(blocks.key_space)
        if space is None:
            return
        missing = space.refs(blocks.keys[cached : at_decision.matched_blocks])
        inferred = self.ledger.claims.observed
        self.num_contradicted += inferred.unmark_until(missing, decided_at)

    # What a dump tells

    @property
    def infers(self) -> bool:
        """Whether copies may be inferred."""
        return self._rules.infers

    def can_restore(self, trust: Trust, seq: int | None) -> bool:
        """Whether what the pool's events told somebody else, up to a batch, may stand for what they have not told here."""
        is_new = self.last_seq is None and not self.ledger.num_held
        return self._speaks and is_new and trust in _RESTORABLE and seq is not None

    def restored(self, seq: int | None, trust: Trust, now: float) -> None:
        """The ledger was filled with what the pool's events have told up to a batch."""
        self.last_seq = seq
        if trust is Trust.DEGRADED:
            self.record_loss(now)

    def snapshot(self, spaces: Mapping[int, Space]) -> PoolSnapshot:
        """All that is known to be in the pool, but for what ranks announce; O(blocks)."""
        ledger = self.ledger.snapshot()
        return PoolSnapshot(self.pool, self.trust, self.last_seq, ledger, spaces)

    # What follows

    def shared_bits(self, slots: Iterable[int]) -> SharedBits | None:
        """How lookups spread what the pool holds over these slots; None where it never held anything."""
        if not self._is_live:
            return None
        announcing = slots_mask((book.slot for book in self._books.values()), STORAGE)
        return SharedBits(self._slot * STRIDE, announcing, slots_mask(slots, 1))

    def tick(self, now: float) -> None:
        """Expire what is too old."""
        self.ledger.claims.observed.expire(now - self._rules.inferred_ttl_s)
        if self._index.share.is_scarce:
            self._names.settle()
            self.ledger.settle_share(now)
        self.ledger.drop_doubtful(now)

    def state(self) -> PoolState:
        """A snapshot."""
        ledger = self.ledger
        announced = sum(book.ledger.num_claims(Tier.STORAGE) for book in self._books.values())
        return PoolState(
            self.pool,
            self.ranks,
            {
                StorageSource.ANNOUNCED: announced,
                StorageSource.POOL_EVENTS: sum(map(ledger.num_claims, Tier)),
                StorageSource.INFERRED: len(ledger.claims.observed),
            },
            self.trust,
            sum(len(group.unnamed) for group in ledger.groups.values()),
            self.num_contradicted,
            dict(ledger.skips),
        )

    def close(self) -> None:
        """Drop everything and give the slot back; nobody is attached any more."""
        assert not self._books
        self._written.clear()
        self.ledger.forget(-math.inf)
        self.ledger.claims.close()

    def check(self) -> None:
        """Verify the invariants; O(all blocks)."""
        self.ledger.check()
        assert self._slot == self.ledger.claims.slot
        assert not self._written, "copies to be inferred"
        assert not self.ledger.num_claims(Tier.GPU)
        bits = {bits for _, bits in self._index.blocks_of(self._slot)}
        assert self._rules.infers or not any(one & OBSERVED for one in bits)
        for book in self._books.values():
            witness = book.ledger.claims.witness
            assert isinstance(witness, _Attached)
            assert witness.pool is self

    def _settle_slot(self) -> None:
        if self._slot != self.ledger.claims.slot:
            self._slot = self.ledger.claims.slot
            self._on_lookups()

    def _settle_models(self) -> None:
        specs = [book.spec for book in self._books.values()]
        self._models = frozenset(name for spec in specs for name in _model_names(spec))

    def _own(self, events: Iterable[KvEvent], *, is_only: bool) -> Iterator[KvEvent]:
        """The events that are of this pool's model, with its media in place of an engine's."""
        for event in events:
            if isinstance(event, AllBlocksCleared):
                yield event
            elif is_only if event.model is None else event.model in self._models:
                is_ours = tier_of(event.medium) in (Tier.HOST, Tier.STORAGE)
                medium = event.medium if is_ours else _POOL_MEDIUM
                yield replace(event, medium=medium, locality=None)
            else:
                self.ledger.skips[ClaimSkip.OTHER_MODEL] += len(event.block_hashes)


def _model_names(spec: WorkerSpec) -> Iterator[str]:
    """All that a pool's keys may call the model by; a path, where the engine was given one."""
    yield spec.model
    yield from spec.aliases
    if spec.tokenizer is not None:
        yield spec.tokenizer


class _Attached:
    """Hears what one attached rank stores."""

    __slots__ = ("_infers", "pool")

    def __init__(self, pool: PoolBook, *, infers: bool) -> None:
        self.pool = pool
        self._infers = infers

    def stored(self, tier: Tier, hashes: Sequence[EngineHash], refs: Sequence[Ref]) -> None:
        """Events stored these hashes of these blocks on the tier."""
        if tier is Tier.STORAGE:
            self.pool.announced()
        elif tier is Tier.HOST and self._infers:
            self.pool.written_through(refs)
        self.pool.named(hashes, refs)

    def settle(self, now: float) -> None:
        """This is the time of all that was told so far."""
        self.pool.infer(now)

    def holds(self, ref: Ref) -> bool:
        """See `PoolBook.holds`."""
        return self.pool.holds(ref)
