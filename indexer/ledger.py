"""One rank's books: what its events say, turned into claims.

    event ──▶ tier, cache group ──▶ piece (tokens, identity) ──▶ parent known? ──▶ refs ──▶ GroupLedger
                                                                    └─ no: parked under the parent

Events are applied in order, each one a set operation; nothing an event says can make this raise. What
cannot be credited is counted under a reason of ``ClaimSkip``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import assert_never

from indexer.block_index import BlockIndex, Ref
from indexer.cache_groups import CacheGroups
from indexer.group_ledger import GroupLedger
from indexer.host_history import HostHistory
from indexer.identity import ClaimSkip
from indexer.limits import IndexLimits
from indexer.lineage import Lineage
from indexer.match import Geometry
from indexer.overdue_search import OverdueSearch
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims
from indexer.snapshots import LedgerSnapshot
from indexer.spoken_keys import SpokenKeys
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    KvEvent,
    Tier,
    tier_of,
)

_LOOKED_AT_ONCE = 8_192


class RankLedger:
    """Applies one rank's events to its claims.

    Attributes:
        links: which block precedes which, as far as served requests tell; names unknown parents.
        history: whether stores account for what is removed from HOST.
        unknown_removals: by tier, removals of what was not held.
        last_removal_at: by tier, when an event last removed or cleared what was held.
        num_gpu_stored: blocks that events stored on GPU, duplicates included.
        last_gpu_store_at: when one last did; None before the first.
        has_placeholders: HOST or STORAGE was stored to without tokens; one hash may then stand for the
            blocks before it as well.
        was_cleared: an event cleared every tier since this was last set to False.
    """

    def __init__(
        self,
        index: BlockIndex,
        model: str,
        limits: IndexLimits,
        *,
        clears_are_total: bool = False,
        names_every_salt: bool = False,
        may_leave_salts_out: bool = False,
    ) -> None:
        self.skips: Counter[ClaimSkip] = Counter()
        self.claims = RankClaims(index, limits)
        self.history = HostHistory(limits.host_copies, index.share)
        self.unknown_removals: Counter[Tier] = Counter()
        self.last_removal_at: dict[Tier, float] = {}
        self.num_gpu_stored = 0
        self.last_gpu_store_at: float | None = None
        self.has_placeholders = False
        self.was_cleared = False
        self._clears_are_total = clears_are_total
        self._index = index
        self._limits = limits
        self._lineage = Lineage(
            index, model, self.skips, limits.remembered, names_every_salt=names_every_salt
        )
        self.links = self._lineage.links
        self._cache_groups = CacheGroups(self._new_group, self.skips, limits.groups)
        self._groups = self._cache_groups.claiming
        self._overdue: OverdueSearch | None = None
        self._spoken = SpokenKeys(index, may_leave_salts_out=may_leave_salts_out)

    @property
    def groups(self) -> Mapping[int | None, GroupLedger]:
        """The cache groups that make claims."""
        return self._groups

    @property
    def has_sparse_groups(self) -> bool:
        """Whether a hit needs more than the blocks that are indexed."""
        return bool(self._cache_groups.sparse)

    @property
    def num_orphans(self) -> int:
        """Parked blocks."""
        return sum(group.parking.num_blocks for group in self._groups.values())

    @property
    def geometries(self) -> Counter[tuple[int, bool]]:
        """(block size, is_eagle) that the events use, with the number of blocks placed."""
        return self._lineage.placement.geometries

    def apply(self, events: Iterable[KvEvent], now: float) -> list[EngineHash]:
        """Apply one batch. O(blocks and tokens in it).

        Returns:
            Hashes removed from HOST whose store there was never announced, as far as that is known.
        """
        strange: list[EngineHash] = []
        for event in events:
            match event:
                case BlockStored():
                    self._store(event, now)
                case BlockRemoved():
                    strange += self._remove(event, now)
                case AllBlocksCleared():
                    self._clear(event, now)
                case _:
                    assert_never(event)
        self._index.drop_unused()
        self.claims.settle_stores(now)
        return strange

    def clear(self, now: float) -> None:
        """Drop every claim: announced on any tier, observed, predicted, parked.

        O(1) in the claims: many are left behind in a retired slot, few dropped one by one.
        """
        self._overdue = None
        if self._is_worth_retiring():
            groups = self._groups.values()
            self.claims.retire([table for group in groups for table in group.give_up()])
        for tier in Tier:
            self._clear_tier(tier, now)
        self.claims.predicted.clear()
        self.links.clear()
        if self._lineage.has_guessed:
            self._lineage.has_guessed = False
            for group in self._groups.values():
                group.forget_names()

    def shrink(self, tier: Tier, max_blocks: int, now: float) -> bool:
        """Drop up to so many blocks of a tier that is about to be cleared; O(``max_blocks``).

        Returns:
            Whether no more than so many are left.
        """
        for group in self._groups.values():
            if len(group.hashes(tier)) > max_blocks:
                hashes = group.shrink(tier, max_blocks, now)
                if tier is Tier.HOST:
                    self.history.add(hashes)
                return False
        return True

    def forget(self, now: float) -> None:
        """Drop every claim and all memory: the engine is a new one."""
        self.clear(now)
        self.geometries.clear()
        for group in self._groups.values():
            group.forget_past()
        self._cache_groups.clear()
        self._spoken.has_extra = self.has_placeholders = False
        self.history.begin()

    def doubt(self, until: float) -> None:
        """Announced claims are older than a loss, and kept until then unless confirmed; O(claims) in C."""
        for tier in Tier:
            self.claims.doubt_all(tier, partial(self._refs, tier), until)
        for group in self._groups.values():
            group.doubt_unnamed(until)

    def drop_doubtful(self, now: float) -> int:
        """Drop claims that are still doubtful when their time is over; 8,192 hashes are looked at in one go.

        Returns:
            Number dropped.
        """
        self.claims.settle_doubt()
        if self._overdue is None:
            if not self._has_overdue(now):
                return 0
            self._overdue = OverdueSearch(self._groups.values())
        dropped = 0
        for group, tier, hashes in self._overdue.next(_LOOKED_AT_ONCE):
            overdue = group.overdue(tier, hashes, now)
            group.remove(tier, overdue, now)
            dropped += len(overdue)
        if self._overdue.is_over:
            self._overdue = None
        return dropped

    def link(
        self, blocks: PromptBlocks, refs: Sequence[Ref], chosen: Sequence[int], now: float
    ) -> None:
        """A served prompt has these blocks after the ones before them: name what waits.

        O(1), amortized, where nothing is parked; O(tokens) otherwise.

        Args:
            refs: of all its blocks.
            chosen: indexes above 0.
        """
        self.links.note(blocks, refs, chosen)
        for group in self._groups.values():
            if group.parking:
                self._lineage.name_waiting(group, map(blocks.local, chosen))
        self.claims.settle_stores(now)

    @property
    def num_held(self) -> int:
        """Hashes held on all tiers, named or not."""
        return sum(len(group.hashes(tier)) for group in self._groups.values() for tier in Tier)

    def num_claims(self, tier: Tier) -> int:
        """Hashes held on a tier, unnamed ones apart; O(groups and unnamed hashes)."""
        return sum(group.num_named(tier) for group in self._groups.values())

    def residency(self, tier: Tier) -> list[EngineHash]:
        """Engine hashes of the announced claims on a tier, over all groups."""
        groups = self._groups.values()
        return [h for group in groups for h in dict.fromkeys(h for h, _ in group.held(tier))]

    def snapshot(self) -> LedgerSnapshot:
        """All that the rank's events have told, and what evidence holds; O(blocks held)."""
        return LedgerSnapshot(
            groups={index: group.snapshot() for index, group in self._groups.items()},
            sparse=self._cache_groups.sparse.copy(),
            geometries=self.geometries.copy(),
            speaks_extra_keys=self._spoken.has_extra,
            has_placeholders=self.has_placeholders,
            observed=self.claims.observed.runs(),
        )

    def restore_traits(
        self,
        sparse: Iterable[int],
        geometries: Mapping[Geometry, int],
        *,
        speaks_extra_keys: bool,
        has_placeholders: bool,
        may_be_guessed: bool,
    ) -> None:
        """What the rank's stores are like, as a snapshot has it."""
        self._lineage.has_guessed = may_be_guessed
        self._cache_groups.sparse.update(islice(sparse, self._limits.groups))
        self.geometries.update(geometries)
        self._spoken.has_extra = speaks_extra_keys
        self.has_placeholders = has_placeholders
        self.history.lose()  # what was on HOST before is known, but not how often

    def restore_group(self, index: int | None) -> GroupLedger | None:
        """The ledger of a group that makes claims; None at the bound of groups."""
        return self._cache_groups.open(index)

    def check(self) -> None:
        """Verify ledgers against the index; O(all blocks)."""
        announced: dict[Tier, Counter[Ref]] = {tier: Counter() for tier in Tier}
        for group in self._groups.values():
            group.check()
            for tier, counts in announced.items():
                counts.update(ref for _, ref in group.held(tier))
        self._cache_groups.check()
        self.history.check()
        self.claims.check(announced)

    def _store(self, event: BlockStored, now: float) -> None:
        tier = self._local_tier(event.medium, event.locality)
        group = self._cache_groups.of(event)
        if tier is None or group is None or not event.block_hashes:
            if tier_of(event.medium) is Tier.HOST:
                # credited nowhere; its removal may come all the same
                self.history.add(event.block_hashes)
            return
        if tier is Tier.GPU:
            self.num_gpu_stored += len(event.block_hashes)
            self.last_gpu_store_at = now
        self._spoken.note(event)
        if not self._spoken.lacks_identity(event, tier):
            self._lineage.store(group, tier, event)
            return
        self.has_placeholders = self.has_placeholders or not event.token_ids
        if group.hold_unresolved(tier, event.block_hashes) and tier is Tier.HOST:
            self.history.lose()

    def _remove(self, event: BlockRemoved, now: float) -> list[EngineHash]:
        tier = self._local_tier(event.medium, event.locality)
        is_sparse = event.group_idx is not None and event.group_idx in self._cache_groups.sparse
        hashes = event.block_hashes
        if tier is None or is_sparse:
            if tier_of(event.medium) is Tier.HOST:
                self.history.use_up(hashes)
            return []
        groups = self._cache_groups.of_removal(event.group_idx)
        if len(groups) == 1:
            unknown = groups[0].remove(tier, hashes, now)
        else:
            unknown = self._remove_from_all(groups, tier, hashes, now)
        if len(unknown) < len(hashes):
            self.last_removal_at[tier] = now
            if tier is Tier.HOST and self.history.is_partial:
                self.history.note_gone(set(hashes).difference(unknown))
        return self._note_unknown(tier, unknown) if unknown else []

    def _remove_from_all(
        self, groups: Iterable[GroupLedger], tier: Tier, hashes: Sequence[EngineHash], now: float
    ) -> list[EngineHash]:
        """Each occurrence of a hash stands for one copy: of what several groups held, copies remain."""
        held: Counter[EngineHash] = Counter()
        for group in groups:
            held += Counter(hashes) - Counter(group.remove(tier, hashes, now))
        unknown = list((Counter(hashes) - held).elements())
        if tier is Tier.HOST:
            self.history.add((held - Counter(hashes)).elements())
        return unknown

    def _note_unknown(self, tier: Tier, hashes: Sequence[EngineHash]) -> list[EngineHash]:
        self.unknown_removals[tier] += len(hashes)
        if tier is not Tier.HOST:
            return []
        held = [group.hashes(tier) for group in self._groups.values()]
        return [h for h in self.history.use_up(hashes) if not any(h in one for one in held)]

    def _clear(self, event: AllBlocksCleared, now: float) -> None:
        if event.medium is None:
            for group in () if self._clears_are_total else self._groups.values():
                self.history.outlast(group.hashes(Tier.HOST))
            self.clear(now)
            self.was_cleared = True
            if self._clears_are_total:
                self.history.begin()
            return
        tier = tier_of(event.medium)
        if tier is None:
            self.skips[ClaimSkip.UNKNOWN_MEDIUM] += 1
            return
        if tier is Tier.HOST:
            for group in self._groups.values():
                self.history.add(group.hashes(tier))
        self._clear_tier(tier, now)

    def settle_share(self, now: float) -> None:
        """Come nearer to a share of the bounds that has shrunk; whenever the rank is told the time."""
        self.claims.settle_share(now)
        self.history.settle_share()
        self.links.settle()
        for group in self._groups.values():
            group.settle_share()

    def _refs(self, tier: Tier) -> list[Ref | None]:
        by_group = [group.refs(tier) for group in self._groups.values()]
        return by_group[0] if len(by_group) == 1 else list(chain.from_iterable(by_group))

    def _has_overdue(self, now: float) -> bool:
        groups = self._groups.values()
        return any(
            self.claims.doubtful[tier].has_overdue(now)
            or any(g.has_overdue(tier, now) for g in groups)
            for tier in Tier
        )

    def _new_group(self) -> GroupLedger:
        return GroupLedger(
            self.claims, self.history, self._lineage.placement.place, self.skips, self._limits
        )

    def _is_worth_retiring(self) -> bool:
        held = self.num_held
        marks = len(self.claims.observed) + len(self.claims.predicted)
        is_much = held + marks > self._limits.cleared_at_once
        return is_much and self._index.retired.num_blocks + held + marks <= self._limits.retired

    def _clear_tier(self, tier: Tier, now: float) -> None:
        self.last_removal_at[tier] = now
        self.claims.departures[tier].forget(now)
        for group in self._groups.values():
            group.clear(tier)
        self.claims.doubtful[tier].clear()
        if tier is Tier.GPU:
            self.claims.observed.clear()

    def _local_tier(self, medium: str | None, locality: str | None) -> Tier | None:
        if locality is not None and locality.upper() == "REMOTE":
            self.skips[ClaimSkip.REMOTE] += 1
            return None
        tier = tier_of(medium)
        if tier is None:
            self.skips[ClaimSkip.UNKNOWN_MEDIUM] += 1
        return tier
