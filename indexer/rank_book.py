"""Everything the index knows of one rank, and what that makes of its trust.

The stream says how complete the events are; here that is combined with what the claims themselves tell: a
loss stops mattering when no claim is older than it, a rank that owes events and is silent is stale, and so
is one that cannot be heard, or whose reports contradict its claims, until one agrees again.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from indexer.actions import ForgetReason, LossCause
from indexer.block_index import BlockIndex, Space
from indexer.dispatches import Dispatch, Dispatches
from indexer.engine_version import are_events_believed
from indexer.evidence import Evidence, Verdict
from indexer.hit_audit import HitAudit
from indexer.identity import ClaimSkip
from indexer.ledger import RankLedger
from indexer.limits import IndexLimits
from indexer.loss_record import LossRecord
from indexer.match import Geometry, Prompt, RankMatch
from indexer.owed_events import OwedEvents
from indexer.predictions import withdraw
from indexer.prompt_blocks import PromptBlocks
from indexer.purges import Purges
from indexer.rank_state import RankState
from indexer.shortfalls import Shortfalls, Wrong
from indexer.snapshots import RankSnapshot
from indexer.strange_removals import StrangeRemovals
from indexer.stream_status import ReplayTrouble
from indexer.trust import Trust
from protocol import (
    EngineKind,
    EventBatch,
    EventSource,
    Rank,
    Tier,
    WorkerSpec,
)

DEFAULT_BLOCK_SIZE = 16
_MAX_LOOKUPS = 4
_HEARD = (Trust.EXACT, Trust.JOINED, Trust.DEGRADED)  # whose events come without a break by now


class RankBook:
    """One rank: ledger, evidence, dispatches, audits.

    Args:
        on_lookups: called whenever ``lookups`` changes.

    Attributes:
        lookups: geometries at which the rank is looked up, the one that most of its events use first (the
            advertised one before the first event); the longest match wins.
        geometry: the first of them.
        sources: where the rank's own events are heard.
    """

    def __init__(
        self,
        rank: Rank,
        spec: WorkerSpec,
        index: BlockIndex,
        limits: IndexLimits,
        now: float,
        on_lookups: Callable[[], None],
    ) -> None:
        self.rank = rank
        self.spec = spec
        self.sources = _own_sources(rank, spec)
        self.added_at = now
        self.is_believed = are_events_believed(spec.engine, spec.version)
        is_sglang = spec.engine is EngineKind.SGLANG
        self.ledger = RankLedger(
            index, spec.model, limits, clears_are_total=is_sglang, names_every_salt=is_sglang,
            may_leave_salts_out=spec.engine is EngineKind.VLLM,
        )  # fmt: skip
        self.slot = self.ledger.claims.slot
        self.evidence = Evidence(self.ledger)
        self.dispatches = Dispatches(self.ledger.claims)
        self.audit = HitAudit(self.ledger, self.dispatches, limits)
        self.owed = OwedEvents(self.ledger)
        self.shortfalls = Shortfalls(self.ledger, limits)
        self.purges = Purges(limits.rebuild_every_s)
        self.strange_removals = StrangeRemovals()
        self.last_seq: int | None = None  # of the last batch that is applied as a whole
        self.losses: dict[LossCause, LossRecord] = {}  # that claims of today may suffer from
        self.replay_trouble: ReplayTrouble | None = None
        self.resets: Counter[ForgetReason] = Counter()
        self.heard_since = now  # since then no store or removal was missed
        self.disconnected_since: float | None = None
        self._limits = limits
        self._said = Trust.NONE
        self._is_contradicted = False
        self._is_incomplete = False
        self._on_lookups = on_lookups
        self.lookups: tuple[Geometry, ...] = ()
        self.geometry: Geometry = (DEFAULT_BLOCK_SIZE, False)
        self._settle_lookups()

    def rename(self, spec: WorkerSpec) -> None:
        """The worker is the same one, with other aliases, adapters or details."""
        self.spec = spec
        self.sources = _own_sources(self.rank, spec)
        self.is_believed = are_events_believed(spec.engine, spec.version)
        self._settle_lookups()

    # What events say

    def apply(self, batch: EventBatch, now: float, seq: int | None = None) -> None:
        """Apply one batch of the rank's stream, or a part; the last part comes with its number."""
        self.last_seq = self.last_seq if seq is None else seq
        self.owed.hear(now)
        if not self.is_believed:
            self.ledger.skips[ClaimSkip.UNBELIEVED] += 1
            return
        if batch.skipped and not batch.is_whole:
            self._miss(now)  # it may have been a store
        strange = self.ledger.apply(batch.events, now)
        if len(self.ledger.geometries) > 1 or self.geometry not in self.ledger.geometries:
            self._settle_lookups()
        if self.ledger.was_cleared:
            self._settle_slot()
            self._on_cleared()
        if strange and self._said in _HEARD and self._knows_copies:
            self.strange_removals.note(strange, now, self._limits.finding_hold_s)

    def forget(self, reason: ForgetReason, now: float) -> None:
        """What was known is void: drop every claim and every memory."""
        self.resets[reason] += 1
        self.ledger.forget(now)
        self.last_seq = None
        self._settle_slot()
        self._settle_lookups()
        self.heard_since = now
        self.dispatches.clear()
        self._reset_suspicions(reason, now)
        self.owed.parity.clear()

    def record_loss(self, now: float, cause: LossCause) -> None:
        """Claims made so far are doubtful: ``doubt_ttl_s`` after the first loss they saw they go."""
        record = self.losses.setdefault(cause, LossRecord())
        record.count += 1
        record.last_at = now
        self._miss(now)
        self.ledger.doubt(now + self._limits.doubt_ttl_s)

    def set_trust(self, trust: Trust) -> None:
        """What the stream says of itself."""
        if trust in (Trust.JOINED, Trust.DEGRADED):
            self.ledger.history.lose()
        self._said = trust

    def set_connected(self, now: float, *, is_connected: bool | None) -> None:
        """Whether its event socket is connected; None where its worker is down."""
        if is_connected is not False:
            self.disconnected_since = None
        elif self.disconnected_since is None:
            self.disconnected_since = now

    def note_evicted(self, num_blocks: int) -> None:
        """So many claims were given up for want of room: the others are true, but not all."""
        self.ledger.skips[ClaimSkip.EVICTED] += num_blocks
        self._miss(math.inf)
        self._is_incomplete = True

    @property
    def _knows_copies(self) -> bool:
        """Whether each removal from HOST is accounted for; after missed stores only without second copies."""
        return self.ledger.history.is_known or not any(self.ledger.claims.duplicates.values())

    # What requests say

    def dispatch(self, prompt: Prompt, now: float) -> None:
        """A request was sent to the rank."""
        self.dispatches.dispatch(self.blocks(prompt), now)

    def withdraw(self, prompt: Prompt, under_way: Iterable[Prompt]) -> None:
        """The request came to nothing; these others are still under way."""
        withdraw(self.ledger.claims, self.blocks(prompt), map(self.blocks, under_way))

    def observe(self, prompt: Prompt, now: float) -> None:
        """The first token of its answer came."""
        blocks = self.blocks(prompt)
        self.evidence.counters.served += 1
        self.dispatches.begin(blocks, now)
        self.evidence.observe(blocks, self.trust(now), now)

    def report(
        self,
        prompt: Prompt,
        cached_tokens: int | None,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
    ) -> None:
        """The answer ended; the engine reported so many cached tokens, or nothing."""
        blocks = self.blocks(prompt)
        cached = None if cached_tokens is None else cached_tokens // blocks.block_size
        dispatch = self.dispatches.end(blocks, cached, decided_at, now)
        if blocks.block_size != at_decision.block_size or prompt.is_approximate:
            return
        self.owed.serve(blocks, cached_tokens, at_decision, decided_at, now, is_cut=prompt.is_cut)
        if cached_tokens is None or cached is None:
            return
        verdict = self.evidence.weigh(blocks, cached_tokens, at_decision, decided_at)
        if prompt.is_cut:
            return
        if verdict is Verdict.AGREES:
            self._is_contradicted = False
            self.shortfalls.agree()
        elif verdict is Verdict.CONTRADICTS:
            self._purge(self.shortfalls.add(blocks, cached, at_decision, decided_at, now), now)
        if dispatch is not None and at_decision.trust is self.trust(now):
            self._audit(dispatch, blocks, cached, at_decision.trust, now)

    def _audit(
        self, dispatch: Dispatch, blocks: PromptBlocks, cached: int, trust: Trust, now: float
    ) -> None:
        """Have the report judged, where enough is known: of a joined rank only what left it since.

        What an engine fetches past its host tier is announced on GPU as what it computes is: nothing tells them apart.
        """
        if self.spec.stages_on_host:
            return
        history = self.ledger.history
        if trust is Trust.EXACT and history.is_complete:
            self.audit.add(dispatch, blocks, cached, now)
        elif trust is Trust.JOINED is self._said and history.is_partial and self._knows_copies:
            self.audit.add(dispatch, blocks, cached, now, heard_since=self.heard_since)

    # What follows

    def trust(self, now: float) -> Trust:
        """How far the claims can be believed."""
        said, is_doubted = self._said, self._is_contradicted or self._is_incomplete
        if not self.is_believed:
            return Trust.NONE
        is_heard = self.owed.since is None and self.disconnected_since is None
        if said is Trust.EXACT and not is_doubted and is_heard:
            return said
        if said in (Trust.NONE, Trust.REBUILDING):
            return said
        if self._is_contradicted or self.is_silent(now) or self.is_unreachable(now):
            return Trust.STALE
        if said is Trust.DEGRADED and not self.ledger.claims.num_doubtful:
            return Trust.JOINED
        if said is Trust.EXACT and self._is_incomplete:
            return Trust.JOINED
        return said

    def wants_rebuild(self, now: float) -> bool:
        """Whether a replay from 0 would bring back what a purge dropped."""
        return self.purges.wants_rebuild(now, is_contradicted=self._is_contradicted)

    def is_silent(self, now: float) -> bool:
        """Whether the rank owes events and has published nothing for too long."""
        return self.owed.is_silent(now, self._limits.silence_bound_s)

    def is_unreachable(self, now: float) -> bool:
        """Whether its worker answers, and its event socket has not been connected for too long."""
        since = self.disconnected_since
        return since is not None and now - since >= self._limits.unreachable_s

    def _settle_slot(self) -> None:
        """Claims that were dropped at once are left behind in another slot."""
        if self.slot != self.ledger.claims.slot:
            self.slot = self.ledger.claims.slot
            self._on_lookups()

    def _settle_lookups(self) -> None:
        """Work out at which geometries the rank is looked up."""
        used = self.ledger.geometries.most_common(_MAX_LOOKUPS)
        advertised = (self.spec.block_size or DEFAULT_BLOCK_SIZE, False)
        lookups = tuple(geometry for geometry, _ in used) or (advertised,)
        if lookups != self.lookups:
            self.lookups, self.geometry = lookups, lookups[0]
            self._on_lookups()

    def blocks(self, prompt: Prompt) -> PromptBlocks:
        """The prompt as the rank would keep it; no block where it does not serve the model."""
        if prompt.model != self.spec.model:
            size, is_eagle = self.geometry
            return PromptBlocks(prompt.space(size, is_eagle=is_eagle), (), prompt.tokens)
        return prompt.blocks(self.geometry)

    def snapshot(self, spaces: Mapping[int, Space], now: float) -> RankSnapshot:
        """All that is claimed of the rank; O(blocks held)."""
        ledger = self.ledger.snapshot()
        return RankSnapshot(
            self.rank, self.spec, self.trust(now), self.last_seq, now, ledger, spaces
        )

    def restored(self, seq: int | None, now: float, *, is_doubted: bool) -> None:
        """The ledger has been filled from a snapshot that was taken after batch ``seq``."""
        self.last_seq = seq
        if is_doubted:
            self.ledger.doubt(now + self._limits.doubt_ttl_s)
        self._settle_lookups()

    def tick(self, now: float) -> None:
        """Expire what is too old."""
        claims, limits = self.ledger.claims, self._limits
        is_exact = self.trust(now) is Trust.EXACT
        ttl = limits.observed_ttl_exact_s if is_exact else limits.observed_ttl_s
        claims.observed.expire(now - ttl)
        claims.predicted.expire(now - limits.predicted_ttl_s)
        self.ledger.drop_doubtful(now)
        if claims.index.share.is_scarce:
            self.ledger.settle_share(now)
            self.dispatches.settle_share()
        self.owed.parity.settle()
        self.audit.settle(now)
        self._purge(self.shortfalls.settle(now), now)

    def close(self) -> None:
        """Drop everything and give the slot back; the book is of no use afterwards."""
        self.ledger.forget(self.added_at)
        self.ledger.claims.close()

    def state(self, now: float) -> RankState:
        """A snapshot."""
        ledger, counters = self.ledger, self.evidence.counters
        groups = ledger.groups.values()
        return RankState(
            rank=self.rank,
            trust=self.trust(now),
            block_size=self.geometry[0],
            blocks={tier: ledger.num_claims(tier) for tier in Tier},
            observed=len(ledger.claims.observed),
            predicted=len(ledger.claims.predicted),
            dropped_marks=ledger.claims.num_dropped_marks,
            doubtful=ledger.claims.num_doubtful,
            orphans=ledger.num_orphans,
            unnamed=sum(len(group.unnamed) for group in groups),
            duplicates=dict(ledger.claims.duplicates),
            unknown_removals=dict(ledger.unknown_removals),
            skips=dict(ledger.skips),
            served=counters.served,
            reports=counters.reports,
            claimed_blocks=counters.claimed_blocks,
            reported_blocks=counters.reported_blocks,
            contradictions=counters.contradictions,
            purges=counters.purges,
            resets=dict(self.resets),
        )

    def check(self) -> None:
        """Verify the invariants; O(all blocks)."""
        self.ledger.check()
        self.dispatches.check()
        self.owed.check()
        self.shortfalls.check()

    def _on_cleared(self) -> None:
        """Every tier was cleared by an event: what is known is complete again."""
        self.ledger.was_cleared = False
        self._is_incomplete = False
        self._is_contradicted = False
        self.losses.clear()
        self.shortfalls.clear()
        self.purges.clear()
        self.owed.parity.clear()

    def _reset_suspicions(self, reason: ForgetReason, now: float) -> None:
        self._is_contradicted = False
        self._is_incomplete = False
        self.losses.clear()
        self.owed.forgive()
        if reason is not ForgetReason.REBUILT:
            self.purges.clear()
        self.purges.note_rebuilt(now)
        self.shortfalls.clear()
        self.audit.clear()
        self.strange_removals = StrangeRemovals()

    def _miss(self, until: float) -> None:
        """Stores and removals may have been missed up to then; infinity: no removal is one by event alone."""
        self.ledger.history.lose()
        self.heard_since = math.nextafter(until, math.inf)

    def _purge(self, wrong: Wrong | None, now: float) -> None:
        """Where reports prove the claims wrong, drop them all. What the same requests prove stays."""
        if wrong is None or self.ledger.has_sparse_groups:
            return  # with sparse groups a hit needs more than the claims, which may be true
        self.evidence.counters.purges += 1
        self.purges.note(wrong, self.shortfalls.rows[wrong])
        self._is_contradicted = self._is_incomplete = True
        self.ledger.clear(now)
        self._settle_slot()
        self._miss(now)
        self.owed.parity.clear()
        self.audit.clear()
        for shortfall in self.shortfalls.rows[wrong].shortfalls:
            self.evidence.observe(shortfall.blocks, self.trust(now), now)


def _own_sources(rank: Rank, spec: WorkerSpec) -> Sequence[EventSource]:
    return [source for source in spec.sources if source.rank == rank]
