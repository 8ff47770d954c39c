"""Reported hits that nothing explains: the sign of a tier whose stores are not announced.

A hit is explained by the claims at decision time (predicted blocks included), by a store on HOST or
STORAGE heard since, by other requests that the rank worked on meanwhile, and by what makes the question
moot: removals from HOST or a clear heard since, or a block of which the engine may hold a second copy.
A GPU store explains nothing: loading the block back for this very request publishes one.

Blocks whose GPU store has been heard are judged at once, for a refill is published before the load-back
that needs it. Others wait a moment for events that are under way.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from indexer.block_index import GPU, HOST, STORAGE, Ref
from indexer.dispatches import Dispatches
from indexer.ledger import RankLedger
from indexer.limits import IndexLimits
from indexer.prompt_blocks import PromptBlocks
from protocol import Tier

_MAX_PENDING = 64
_MAX_REPORTS = 64
_ACTIVE_BEFORE_S = (
    10.0  # how long before the decision another request's last events may be unheard of
)


@dataclass(frozen=True, slots=True)
class HitReport:
    """What an engine reported of one request, in full blocks.

    Attributes:
        explained: leading blocks that the claims at decision time explain.
        cached: leading blocks that the engine reused.
    """

    blocks: PromptBlocks
    explained: int
    cached: int
    decided_at: float
    reported_at: float


@dataclass(frozen=True, slots=True)
class UnexplainedHit:
    """One report with blocks that nothing explains."""

    at: float
    num_blocks: int
    first_key: int


class HitAudit:
    """Judges one rank's reports.

    Attributes:
        hits: times of the last 64 reports with a hit.
        unexplained: those of them that nothing explains.
    """

    def __init__(self, ledger: RankLedger, dispatches: Dispatches, limits: IndexLimits) -> None:
        self._ledger = ledger
        self._dispatches = dispatches
        self._limits = limits
        self._pending: deque[HitReport] = deque(maxlen=_MAX_PENDING)
        self.hits: deque[float] = deque(maxlen=_MAX_REPORTS)
        self.unexplained: deque[UnexplainedHit] = deque(maxlen=_MAX_REPORTS)

    def add(self, report: HitReport, now: float) -> None:
        """Take one report in. At the bound of pending ones the oldest is not judged."""
        if report.cached < 1:
            return
        self.hits.append(now)
        if not self._judge(report, now):
            self._pending.append(report)

    def settle(self, now: float) -> None:
        """Judge the reports that waited for events."""
        for _ in range(len(self._pending)):
            report = self._pending.popleft()
            if not self._judge(report, now):
                self._pending.append(report)

    def clear(self) -> None:
        """What was reported before says nothing about what comes."""
        self._pending.clear()
        self.hits.clear()
        self.unexplained.clear()

    def _judge(self, report: HitReport, now: float) -> bool:
        """Whether the report could be judged."""
        left = self._left_open(report)
        if not left:
            return True
        is_heard = all(bits & GPU for bits in self._ledger.claims.bits(left))
        if not is_heard:
            if now < report.reported_at + self._limits.settle_s:
                return False
            stored_at = self._ledger.last_gpu_store_at
            if stored_at is not None and stored_at >= report.decided_at:
                return True  # stores were heard, of other blocks: perhaps keys do not agree
        key = left[0] & (1 << 64) - 1
        self.unexplained.append(UnexplainedHit(now, len(left), key))
        return True

    def _left_open(self, report: HitReport) -> Sequence[Ref]:
        """The reused blocks that nothing explains."""
        for tier in (Tier.HOST, Tier.STORAGE):
            removed_at = self._ledger.last_removal_at.get(tier)
            if removed_at is not None and removed_at >= report.decided_at:
                return ()
        blocks = report.blocks
        since = report.decided_at - _ACTIVE_BEFORE_S
        brought = self._dispatches.brought(blocks, report.decided_at, since)
        first = max(report.explained, brought)
        refs, bits = self._ledger.claims.look(blocks)
        self._ledger.claims.index.drop_unused()
        doubled = [group.doubled for group in self._ledger.groups.values()]
        return [
            ref
            for ref, held in islice(zip(refs, bits, strict=True), first, report.cached)
            if not held & (HOST | STORAGE) and not any(ref in copies for copies in doubled)
        ]
