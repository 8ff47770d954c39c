"""Reported hits that nothing explains: the sign of a tier whose stores are not announced.

Events come in order, so a block that an engine reuses was claimed when the request was planned, or an
event since then says how it came. Block by block, a hit is explained by

- anything known of the block at decision time, predictions included;
- its being on HOST or STORAGE, or its having left there since the decision, or its being in the rank's
  storage pool;
- a request that may have computed it, and whose stores may have been unheard at the decision;
- a second copy that the engine may have.

A GPU store explains nothing: loading the block back for this very request publishes one. Nothing is
judged where the engine holds what the claims cannot name. Of a rank that was joined late only those blocks are
judged whose going was heard: the others may have been there from the start.

Blocks whose GPU store has been heard are judged at once, for a refill is published before the load-back
that needs it. Others wait a moment for events that are under way, and those that another request may have
computed wait for its report.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indexer.block_index import KEY_MASK, Ref
from indexer.dispatches import Dispatch, Dispatches
from indexer.ledger import RankLedger
from indexer.limits import IndexLimits
from indexer.prompt_blocks import PromptBlocks
from indexer.slot_bits import GPU, HOST, STORAGE
from protocol import Tier

_MAX_PENDING = 256
_MAX_UNEXPLAINED = 64
_PATIENCE_S = 60.0  # how long a report waits for those of other requests


@dataclass(frozen=True, slots=True)
class _Report:
    """What an engine reported of one request: ``cached`` leading blocks were reused."""

    dispatch: Dispatch
    blocks: PromptBlocks
    cached: int
    at: float
    num_hits_before: int
    heard_since: float | None


@dataclass(frozen=True, slots=True)
class UnexplainedHit:
    """One report with blocks that nothing explains.

    Attributes:
        num_hits_before: earlier reports with a hit.
    """

    at: float
    num_blocks: int
    first_key: int
    num_hits_before: int


class HitAudit:
    """Judges one rank's reports.

    Attributes:
        num_hits: reports with a hit.
        unexplained: the last 64 of them that nothing explains.
    """

    def __init__(self, ledger: RankLedger, dispatches: Dispatches, limits: IndexLimits) -> None:
        self._ledger = ledger
        self._claims = ledger.claims
        self._dispatches = dispatches
        self._limits = limits
        self._pending: deque[_Report] = deque(maxlen=_MAX_PENDING)
        self.num_hits = 0
        self.unexplained: deque[UnexplainedHit] = deque(maxlen=_MAX_UNEXPLAINED)

    def add(
        self,
        dispatch: Dispatch,
        blocks: PromptBlocks,
        cached: int,
        now: float,
        heard_since: float | None = None,
    ) -> None:
        """Take one report in. At the bound of pending ones the oldest is not judged.

        Args:
            cached: leading blocks that the engine reused.
            heard_since: from when on all events were heard; None where they always were. What the engine
                held before is not known, so only blocks are judged that left GPU and HOST since then.
        """
        if cached < 1:
            return
        cached = min(cached, len(blocks.keys))
        report = _Report(dispatch, blocks, cached, now, self.num_hits, heard_since)
        self.num_hits += 1
        if not self._judge(report, now):
            self._pending.append(report)

    def settle(self, now: float) -> None:
        """Judge the reports that waited."""
        for _ in range(len(self._pending)):
            report = self._pending.popleft()
            if not self._judge(report, now):
                self._pending.append(report)

    def clear(self) -> None:
        """What was reported before says nothing about what comes."""
        self._pending.clear()
        self.unexplained.clear()

    def _judge(self, report: _Report, now: float) -> bool:
        """Whether the report could be judged."""
        refs, left = self._left_open(report)
        if not left:
            return True
        origin = self._dispatches.origin(report.dispatch, left)
        if not origin.nowhere:
            return not origin.uncertain or now >= report.at + _PATIENCE_S
        unexplained = [refs[i] for i in origin.nowhere]
        since = report.dispatch.dispatched_at
        if not all(self._on_gpu_since(unexplained, since)):
            if now < report.at + self._limits.settle_s:
                return False
            if self._keys_may_disagree([refs[i] for i in report.dispatch.unknown], since):
                return True
        key = unexplained[0] & KEY_MASK
        hit = UnexplainedHit(now, len(unexplained), key, report.num_hits_before)
        self.unexplained.append(hit)
        return True

    def _left_open(self, report: _Report) -> tuple[Sequence[Ref], Sequence[int]]:
        """Refs of the prompt's blocks, and which of the reused ones no event explains."""
        since = report.dispatch.dispatched_at
        unknown = report.dispatch.unknown
        open_blocks = unknown[: bisect_left(unknown, report.cached)]
        if not open_blocks or self._holds_unnamed(since):
            return (), ()
        refs, runs = self._claims.look(report.blocks)
        self._claims.index.drop_unused()
        if report.heard_since is not None:
            open_blocks = [i for i in open_blocks if self._is_gone(refs[i], report.heard_since)]
        lower = [
            bool(held & (HOST | STORAGE)) or self._left_lower_tier(ref, since)
            for start, end, held in runs
            for ref in refs[start : min(end, report.cached)]
        ]
        witness = self._claims.witness
        if witness is not None:
            lower = [
                is_lower or witness.holds(ref) for ref, is_lower in zip(refs, lower, strict=False)
            ]
        if self._ledger.has_placeholders:  # one hash may stand for the blocks before it, too
            last = max((i for i, is_lower in enumerate(lower) if is_lower), default=-1)
            open_blocks = [i for i in open_blocks if i > last]
        doubled = [group.doubled for group in self._ledger.groups.values()]
        return refs, [
            i
            for i in open_blocks
            if not lower[i] and not any(refs[i] & KEY_MASK in copies for copies in doubled)
        ]

    def _holds_unnamed(self, since: float) -> bool:
        """Whether the engine held blocks since then of which we do not know which they are."""
        for group in self._ledger.groups.values():
            if group.unnamed:
                return True
            if group.unnamed_left_at is not None and group.unnamed_left_at >= since:
                return True
        return False

    def _left_lower_tier(self, ref: Ref, since: float) -> bool:
        departures = self._claims.departures
        return any(departures[tier].may_have_left(ref, since) for tier in (Tier.HOST, Tier.STORAGE))

    def _is_gone(self, ref: Ref, since: float) -> bool:
        """Whether the block is known to have left GPU and HOST since then."""
        departures = self._claims.departures
        return all(departures[tier].has_left(ref, since) for tier in (Tier.GPU, Tier.HOST))

    def _on_gpu_since(self, refs: Sequence[Ref], since: float) -> Iterator[bool]:
        """Of each block, whether it is or was known to be on GPU since then."""
        departed = self._claims.departures[Tier.GPU]
        for ref, held in zip(refs, self._claims.bits(refs), strict=True):
            yield bool(held & GPU) or departed.has_left(ref, since)

    def _keys_may_disagree(self, refs: Sequence[Ref], since: float) -> bool:
        """Whether stores were heard, and none of them was of this prompt."""
        stored_at = self._ledger.last_gpu_store_at
        is_storing = stored_at is not None and stored_at >= since
        return is_storing and not any(self._on_gpu_since(refs, since))
