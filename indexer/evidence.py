"""What served requests prove of one rank, where its events say nothing or too much.

An answer that began proves that every full block of its prompt was on GPU at that moment. Those that no
event has announced there become *observed*: claims that age, and that events overrule. On a rank whose
events are unbroken only blocks that were predicted at dispatch, and that no event has spoken of since, are
taken; everything else its events will say.

The cached tokens that an engine reports are held against the claims at decision time. An engine reuses at
most all tokens but the last, and with a draft model one block less, so one block short is no contradiction;
neither is any shortfall on a rank that reported removals since the decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from indexer.block_index import Ref
from indexer.ledger import RankLedger
from indexer.mask_runs import BitRun, numbers_of, parts_of
from indexer.match import RankMatch
from indexer.prompt_blocks import PromptBlocks
from indexer.slot_bits import GPU, OBSERVED, PREDICTED
from indexer.trust import Trust
from protocol import Tier


class Verdict(StrEnum):
    """How a report compares with the claims."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    UNCLEAR = "unclear"


@dataclass(slots=True)
class EvidenceCounters:
    """Sums over one rank's requests. Reuse predicted well is ``reported_blocks / claimed_blocks``.

    Attributes:
        claimed_blocks: blocks matched at decision time, of requests with a report.
        reported_blocks: full blocks that the engine reported as cached, of the same requests.
    """

    served: int = 0
    reports: int = 0
    claimed_blocks: int = 0
    reported_blocks: int = 0
    contradictions: int = 0
    purges: int = 0


class Evidence:
    """Observed claims of one rank, and how its reports compare with the claims."""

    def __init__(self, ledger: RankLedger) -> None:
        self._ledger = ledger
        self._claims = ledger.claims
        self.counters = EvidenceCounters()

    def observe(self, blocks: PromptBlocks, trust: Trust, now: float) -> None:
        """The first token of an answer came: the prompt's full blocks are on GPU. O(blocks)."""
        claims = self._claims
        refs, runs = claims.look(blocks)
        if trust is Trust.EXACT:
            chosen = [run for run in runs if run.bits & (OBSERVED | PREDICTED)]
        else:
            chosen = [run for run in runs if not run.bits & GPU]
        self._prove(refs, chosen, now)
        if claims.doubtful[Tier.GPU]:
            claims.confirm(Tier.GPU, refs)
        if trust is not Trust.EXACT:
            new = [run for run in chosen if not run.bits & OBSERVED]
            self._ledger.link(blocks, refs, [i for i in numbers_of(new) if i], now)
        claims.index.drop_unused()

    def weigh(
        self,
        blocks: PromptBlocks,
        cached_tokens: int,
        at_decision: RankMatch,
        decided_at: float,
    ) -> Verdict:
        """Hold the engine's report against the claims, and count it."""
        cached = cached_tokens // blocks.block_size
        self.counters.reports += 1
        self.counters.claimed_blocks += at_decision.matched_blocks
        self.counters.reported_blocks += min(cached, len(blocks.keys))
        expected = min(at_decision.gpu_blocks, blocks.num_reusable) - 1
        removed_at = self._ledger.last_removal_at.get(Tier.GPU)
        if expected < 1 or (removed_at is not None and removed_at > decided_at):
            return Verdict.UNCLEAR
        if cached >= expected:
            return Verdict.AGREES
        self.counters.contradictions += 1
        return Verdict.CONTRADICTS

    def _prove(self, refs: Sequence[Ref], chosen: Sequence[BitRun], now: float) -> None:
        """What was predicted of these blocks, or not known, is observed."""
        claims = self._claims
        changed = [run for run in chosen if run.bits & (OBSERVED | PREDICTED) != OBSERVED]
        predicted = [run for run in changed if run.bits & PREDICTED]
        claims.index.change_prompt(parts_of(refs, changed), claims.slot, OBSERVED, PREDICTED)
        claims.predicted.forget_all(parts_of(refs, predicted))
        claims.observed.note(parts_of(refs, chosen), now)
