"""What one cache group of one rank holds, by the engine's own hashes: a set a tier.

Each tier maps the engine hashes held there to the blocks they name. A hash may be held *unnamed* (None): its
event carried no tokens, its parent is unknown (*parked*), or it cannot be identified (*unkeyable*, nor can
what comes after it). As soon as an event or evidence names it, it counts on every tier that holds it, and
what waited for it is adopted.

Stores and removals are set operations a (tier, hash): doing one twice changes nothing and is counted. An
engine that keeps a second physical copy (vLLM, for a while) is under-claimed from the first removal on; a
count would never come down again where stores are repeated without removals.

An engine may give blocks of two namespaces one hash while its events name the namespaces. Then the hash names
both blocks (``Namesakes``), and the first removal ends both claims.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from indexer.block_index import Ref
from indexer.claim_ages import ClaimAges
from indexer.duplicates import Duplicates
from indexer.host_history import HostHistory
from indexer.identity import ClaimSkip, Piece
from indexer.limits import IndexLimits
from indexer.namesakes import Namesakes
from indexer.observed_removals import unobserve
from indexer.parking import Parking
from indexer.rank_claims import RankClaims
from indexer.remembered import Remembered
from indexer.retired_slots import Table
from indexer.snapshots import GroupSnapshot
from indexer.unnamed_hashes import UnnamedHashes
from protocol import EngineHash, Tier

Place = Callable[[Piece, Ref], Sequence[Ref]]


class GroupLedger:
    """Ledger of one cache group.

    Attributes:
        parking: pieces that wait for their parents.
        doubled: keys of blocks of which the engine may have two copies, see ``Duplicates``.
        unnamed_left_at: when a hash that named no block was last removed; None before the first time.
    """

    def __init__(
        self,
        claims: RankClaims,
        history: HostHistory,
        place: Place,
        skips: Counter[ClaimSkip],
        limits: IndexLimits,
    ) -> None:
        self._claims = claims
        self._place = place
        self._skips = skips
        self._limits = limits
        self._tiers: dict[Tier, dict[EngineHash, Ref | None]] = {tier: {} for tier in Tier}
        clock = claims.index.clock
        self._ages = {tier: ClaimAges(clock, limits.age_grain) for tier in Tier}
        self._names: Remembered[EngineHash, Ref] = Remembered(limits.remembered, claims.index.share)
        self._unnamed = UnnamedHashes()
        self._namesakes = Namesakes(limits.namesakes, skips, claims.index.share)
        self.parking = Parking(limits.orphans, limits.orphan_bytes, claims.index.share)
        self._duplicates = Duplicates(claims, history, limits.doubled)
        self.doubled = self._duplicates.doubled
        self.unnamed_left_at: float | None = None

    @property
    def unnamed(self) -> Collection[EngineHash]:
        """Hashes held that name no block, for whatever reason."""
        return self._unnamed.hashes

    def held(self, tier: Tier) -> Iterator[tuple[EngineHash, Ref]]:
        """The named hashes of a tier and their blocks; a hash comes again with each namesake."""
        yield from ((h, ref) for h, ref in self._tiers[tier].items() if ref is not None)
        yield from self._namesakes.of(tier)

    def hashes(self, tier: Tier) -> Collection[EngineHash]:
        """The hashes of a tier, named or not."""
        return self._tiers[tier].keys()

    def tables(self) -> list[Mapping[EngineHash, Ref | None]]:
        """What is held on each tier, and what was a while ago; to be sized, and not to be changed."""
        return [*self._tiers.values(), *self._names.generations]

    def num_named(self, tier: Tier) -> int:
        """Those of them that name a block; O(unnamed hashes)."""
        held = self._tiers[tier]
        return len(held) - sum(block_hash in held for block_hash in self._unnamed.hashes)

    def ref_of(self, block_hash: EngineHash) -> Ref | None:
        """The block a hash names: by an event, now or a while ago, or by evidence."""
        for held in self._tiers.values():
            ref = held.get(block_hash)
            if ref is not None:
                return ref
        ref = self._names.get(block_hash)
        if ref is None and self._claims.other_names is not None:
            ref = self._claims.other_names.get(block_hash)
        return ref if ref is not None and self._is_known(ref) else None

    def is_unkeyable(self, block_hash: EngineHash) -> bool:
        """Whether the hash is held and cannot be identified."""
        return block_hash in self._unnamed.unkeyable

    def store(self, tier: Tier, hashes: Sequence[EngineHash], refs: Sequence[Ref]) -> None:
        """Hold the hashes on the tier under the blocks they name. O(blocks).

        Args:
            refs: of the leading hashes; those beyond are unkeyable.
        """
        if self._claims.witness is not None:
            self._claims.witness.stored(tier, hashes, refs)
        held = self._tiers[tier]
        fresh: list[Ref] = []
        again: list[tuple[EngineHash, Ref]] = []
        for block_hash, ref in zip(hashes, refs, strict=False):
            if block_hash not in held:
                held[block_hash] = ref
                fresh.append(ref)
                continue
            before = held[block_hash]
            if before is None:
                held[block_hash] = ref
                self._unnamed.confirm(tier, block_hash)
                fresh.append(ref)
            elif before != ref and self._namesakes.add(tier, block_hash, ref):
                fresh.append(ref)
            again.append((block_hash, ref if before is None else before))
        self._ages[tier].note(held)
        self._claims.announce(tier, fresh)
        if again:
            self._duplicates.note(tier, again)
        if self._unnamed.hashes or self.parking.num_blocks:
            self._name_all(zip(hashes, refs, strict=False))
        if len(refs) < len(hashes):
            self._hold_unkeyable(tier, hashes[len(refs) :])

    def park(self, tier: Tier, piece: Piece) -> None:
        """Hold blocks whose parent is unknown until it is heard of."""
        if self.parking.closes_cycle(piece):
            self._skips[ClaimSkip.PARENT_CYCLE] += len(piece.hashes)
            self._hold_unkeyable(tier, piece.hashes)
            return
        is_parked = all(block_hash in self.parking for block_hash in piece.hashes)
        self._hold(tier, piece.hashes)
        if not is_parked and (dropped := self.parking.park(piece)):
            self._skips[ClaimSkip.ORPHAN_DROPPED] += dropped

    def hold_unresolved(self, tier: Tier, hashes: Sequence[EngineHash]) -> int:
        """Hold blocks known by hash alone; those heard of elsewhere count at once.

        Returns:
            Number of blocks that did not fit the bound of unnamed ones, and are not held.
        """
        room = max(0, self._limits.unresolved - len(self.unnamed))
        named = [(block_hash, self.ref_of(block_hash)) for block_hash in hashes]
        known = [(block_hash, ref) for block_hash, ref in named if ref is not None]
        unknown = [block_hash for block_hash, ref in named if ref is None]
        if known:
            self.store(tier, *zip(*known, strict=True))
        self._hold(tier, unknown[:room])
        if unknown[:room]:
            self._skips[ClaimSkip.UNRESOLVED] += len(unknown[:room])
        if len(unknown) > room:
            self._skips[ClaimSkip.UNRESOLVED_FULL] += len(unknown) - room
        return max(0, len(unknown) - room)

    def refs(self, tier: Tier) -> list[Ref | None]:
        """What the hashes of a tier name, namesakes too; None for what they do not. O(blocks held), in C."""
        return [*self._tiers[tier].values(), *(ref for _, ref in self._namesakes.of(tier))]

    def doubt_unnamed(self, until: float) -> None:
        """Hashes that name no block are older than a loss, and kept until then unless confirmed; O(unnamed)."""
        self._unnamed.doubt(self._tiers, until)

    def has_overdue(self, tier: Tier, now: float) -> bool:
        """Whether the time of an unnamed hash is over."""
        return self._unnamed.has_overdue(tier, now)

    def overdue(self, tier: Tier, hashes: Iterable[EngineHash], now: float) -> list[EngineHash]:
        """Those of the hashes whose doubt is over, named or not. O(hashes)."""
        return [block_hash for block_hash in hashes if self._is_overdue(tier, block_hash, now)]

    def remove(self, tier: Tier, hashes: Sequence[EngineHash], now: float) -> list[EngineHash]:
        """Hold the hashes on the tier no longer; other tiers and children are untouched. O(blocks).

        Returns:
            Those that were not held there.
        """
        held, remember = self._tiers[tier], self._names.young
        pop, has_namesakes = held.pop, bool(self._namesakes)
        gone: list[Ref] = []
        unknown: list[EngineHash] = []
        for block_hash in hashes:
            if block_hash not in held:
                unknown.append(block_hash)
                continue
            ref = pop(block_hash)
            if ref is not None:
                remember[block_hash] = ref
                gone.append(ref)
                if has_namesakes:
                    gone += self._namesakes.pop(tier, block_hash)
                continue
            self.unnamed_left_at = now
            self._unnamed.confirm(tier, block_hash)
            if not any(block_hash in one for one in self._tiers.values()):
                self._unnamed.drop(block_hash)
        self._ages[tier].note(held)
        self._names.turn()
        if gone:
            self._claims.withdraw(tier, gone)
            self._claims.departures[tier].note(gone, now)
        if tier is Tier.GPU and unknown and self._claims.observed:
            unobserve(self._claims.observed, hashes, unknown, self.ref_of)
        return unknown

    def name(self, block_hash: EngineHash, ref: Ref) -> None:
        """Evidence says which block a hash names, though no event has stored it."""
        self._names.add(block_hash, ref)
        self._name_all([(block_hash, ref)])

    def clear(self, tier: Tier) -> None:
        """Hold nothing on the tier, and remember as much of it as fits; O(blocks held)."""
        held = self._tiers[tier]
        if not held:
            return
        self._claims.withdraw(tier, [ref for _, ref in self.held(tier)])
        self._namesakes.clear(tier)
        self._remember_latest(held)
        held.clear()
        self._ages[tier].note(held)
        self._unnamed.clear(tier, self._tiers)
        if not any(self._tiers.values()):
            self.parking.clear()

    def give_up(self) -> list[Table[Ref]]:
        """Hold nothing on any tier, as after ``clear`` of each, and leave the bits; O(1).

        Returns:
            What was held, by hash.
        """
        tables: list[Table[Ref]] = []
        for tier, held in self._tiers.items():
            self._remember_latest(held)
            tables.append(held)
            self._tiers[tier] = {}
            self._ages[tier].note({})
        tables += self._namesakes.give_up()
        self._unnamed.give_up()
        self.parking.clear()
        return tables

    def shrink(self, tier: Tier, max_blocks: int, now: float) -> list[EngineHash]:
        """Drop up to so many hashes of a tier, named or not; O(``max_blocks``). Returns them."""
        held = self._tiers[tier]
        latest = [held.popitem() for _ in range(min(len(held), max_blocks))]
        held.update(reversed(latest))  # a dictionary shows its end in no other way
        hashes = [block_hash for block_hash, _ in latest]
        self.remove(tier, hashes, now)
        return hashes

    def snapshot(self) -> GroupSnapshot:
        """All that is held and remembered; O(blocks held)."""
        return GroupSnapshot(
            held={tier: (list(held), list(held.values())) for tier, held in self._tiers.items()},
            namesakes=self._namesakes.rows(),
            unkeyable=self._unnamed.unkeyable.copy(),
            names=[(h, ref) for h, ref in self._names.items() if self._is_known(ref)],
            parked=self.parking.pieces(),
        )

    def restore_names(self, names: Iterable[tuple[EngineHash, Ref]]) -> None:
        """These hashes were held a while ago."""
        for block_hash, ref in names:
            self._names.add(block_hash, ref)

    def restore_unnamed(
        self, tier: Tier, hashes: Iterable[EngineHash], *, is_unkeyable: bool
    ) -> None:
        """These hashes are held, and nobody knows what they name."""
        held = self._tiers[tier]
        for block_hash in hashes:
            if self.ref_of(block_hash) is None:
                held[block_hash] = None
                self._unnamed.add(block_hash)
                if is_unkeyable:
                    self._unnamed.unkeyable.add(block_hash)
        self._ages[tier].note(held)

    def oldest(self, tier: Tier) -> int | None:
        """About when the oldest hash of the tier was stored, by the index's clock; None where none is held."""
        return self._ages[tier].oldest(self._tiers[tier])

    def evict(self, tier: Tier, max_blocks: int, now: float) -> int:
        """Drop up to so many of the oldest hashes of a tier, named or not; returns how many."""
        oldest = list(islice(self._tiers[tier], max_blocks))
        self.remove(tier, oldest, now)
        return len(oldest)

    def settle_share(self) -> None:
        """Come down to a share that has shrunk; O(1), and O(what no longer fits) of what is parked."""
        self._names.settle()
        self.doubled.settle()
        if dropped := self.parking.settle():
            self._skips[ClaimSkip.ORPHAN_DROPPED] += dropped

    def forget_names(self) -> None:
        """Forget which blocks hashes named that are not held: evidence may have named them wrongly."""
        self._names.clear()

    def forget_past(self) -> None:
        """Forget what was held before: the engine has started anew."""
        self.forget_names()
        self.doubled.clear()

    def check(self) -> None:
        """Verify the invariants; O(blocks held)."""
        self.parking.check()
        self._unnamed.check(self._tiers)
        for tier, ages in self._ages.items():
            ages.check(self._tiers[tier])
        self._namesakes.check(self._tiers)

    def _remember_latest(self, held: dict[EngineHash, Ref | None]) -> None:
        for block_hash, ref in islice(reversed(held.items()), self._limits.remembered):
            if ref is not None:
                self._names.young[block_hash] = ref
        self._names.turn()

    def _hold(self, tier: Tier, hashes: Sequence[EngineHash]) -> None:
        """Hold hashes whose event does not say which blocks they name; some may be named already."""
        held = self._tiers[tier]
        for block_hash in hashes:
            ref = self.ref_of(block_hash)
            if ref is not None:
                self.store(tier, [block_hash], [ref])
            elif block_hash in held:
                self._duplicates.note_unnamed(tier, block_hash)
                self._unnamed.confirm(tier, block_hash)
            else:
                held[block_hash] = None
                self._unnamed.add(block_hash)
        self._ages[tier].note(held)

    def _hold_unkeyable(self, tier: Tier, hashes: Sequence[EngineHash]) -> None:
        self._hold(tier, hashes)
        self._unnamed.note_unkeyable(hashes)

    def _name_all(self, pairs: Iterable[tuple[EngineHash, Ref]]) -> None:
        """Count these hashes wherever they are held, and adopt what waits under them."""
        waiting = list(pairs)
        while waiting:
            block_hash, ref = waiting.pop()
            if block_hash in self._unnamed.hashes:
                self._unnamed.drop(block_hash)
                self._name_held(block_hash, ref)
            for piece in self.parking.take(block_hash):
                refs = self._place(piece, ref)
                adopted = list(zip(piece.hashes, refs, strict=False))
                self._names.young.update(adopted)  # some may have left since; their children follow
                self._names.turn()
                waiting += adopted
                self._unnamed.note_unkeyable(piece.hashes[len(refs) :])

    def _name_held(self, block_hash: EngineHash, ref: Ref) -> None:
        witness = self._claims.witness
        for tier, held in self._tiers.items():
            if block_hash not in held:
                continue
            if witness is not None:
                witness.stored(tier, [block_hash], [ref])
            if held[block_hash] is None:
                held[block_hash] = ref
                self._claims.announce(tier, [ref])
                until = self._unnamed.confirm(tier, block_hash)
                if until is not None:
                    self._claims.doubtful[tier].enter([ref], until)

    def _is_known(self, ref: Ref) -> bool:
        return self._claims.index.space_of(ref) is not None

    def _is_overdue(self, tier: Tier, block_hash: EngineHash, now: float) -> bool:
        held = self._tiers[tier]
        if block_hash not in held:
            return False
        ref = held[block_hash]
        if ref is None:
            return self._unnamed.is_overdue(tier, block_hash, now)
        refs = (ref, *self._namesakes.get(tier, block_hash))
        doubts = self._claims.doubtful[tier]
        return any(doubts.is_overdue(one, now) for one in refs)
