"""Reports that fall short of the claims: which of them prove that claims were wrong, and what is wrong.

A shortfall is *proven* as soon as nothing can explain it any more:

- at once, where the block that was not reused was stored on GPU again although it is claimed there, or where
  two requests, one after the other, fell short of the same block;
- else ``settle_s`` after the report, unless an event has told by then that the block had left.

``contradictions`` proven ones in a row, without a report that agrees in between, end all claims of the rank.
They show one of two things:

    silent clear    nothing was reused, of as many prompts with different beginnings, all claimed by events that are
                    unbroken; and the engine stores these prompts anew, or stores nothing
    contradiction   anything else: some of a prompt is reused and some not; one prompt is never reused; the
                    engine stores other blocks than these

An engine that has lost its cache computes each prompt anew, stores it and reuses it from then on. One that
sees other tokens than the router, or does not report what it reuses, does not.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from indexer.ledger import RankLedger
from indexer.limits import IndexLimits
from indexer.match import RankMatch
from indexer.prompt_blocks import PromptBlocks
from indexer.slot_bits import GPU, OBSERVED
from indexer.trust import Trust
from protocol import Tier

_MAX_PENDING = 64
_MIN_CLAIMED = 2
_UNBROKEN = (Trust.EXACT, Trust.JOINED)


class Wrong(StrEnum):
    """What a row of shortfalls shows."""

    SILENT_CLEAR = "silent_clear"
    CONTRADICTION = "contradiction"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One report below the claims.

    Attributes:
        reused: leading blocks that the engine reused.
        announced: blocks that events announced on GPU, as matched at the decision.
        is_unbroken: whether the rank's events were believed in full then.
    """

    blocks: PromptBlocks
    reused: int
    announced: int
    is_unbroken: bool
    decided_at: float
    at: float

    @property
    def missing(self) -> int:
        """Key of the first block that was claimed and not reused."""
        return self.blocks.keys[self.reused]


@dataclass(frozen=True, slots=True)
class Row:
    """Proven shortfalls, without a report that agreed in between.

    Attributes:
        count: rows so far that showed the same.
        is_storing: the engine was heard to store something since the first of them was decided.
    """

    shortfalls: tuple[Shortfall, ...]
    at: float
    count: int
    is_storing: bool


class Shortfalls:
    """Shortfalls of one rank. At the bound of those that wait, the oldest is not judged.

    Attributes:
        rows: the last row that was long enough, by what it showed.
    """

    def __init__(self, ledger: RankLedger, limits: IndexLimits) -> None:
        self._ledger = ledger
        self._limits = limits
        self._pending: deque[Shortfall] = deque(maxlen=_MAX_PENDING)
        self._num_doubled = 0
        self._proven: list[Shortfall] = []
        self.rows: dict[Wrong, Row] = {}

    def add(
        self,
        blocks: PromptBlocks,
        reused: int,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
    ) -> Wrong | None:
        """Take a shortfall in; what the row shows, if it is long enough by now."""
        announced = at_decision.gpu_blocks - at_decision.observed_blocks
        is_unbroken = at_decision.trust in _UNBROKEN
        self._pending.append(Shortfall(blocks, reused, announced, is_unbroken, decided_at, now))
        return self.settle(now)

    def settle(self, now: float) -> Wrong | None:
        """Judge those that wait; what the row shows, once it is long enough. O(waiting)."""
        for _ in range(len(self._pending)):
            shortfall = self._pending.popleft()
            if self._is_explained(shortfall):
                continue
            if self._is_proven(shortfall) or now >= shortfall.at + self._limits.settle_s:
                self._proven.append(shortfall)
            else:
                self._pending.append(shortfall)
        if len(self._proven) < self._limits.contradictions:
            return None
        wrong = Wrong.SILENT_CLEAR if self._is_silent_clear() else Wrong.CONTRADICTION
        before = self.rows.get(wrong)
        count = 1 if before is None else before.count + 1
        self.rows[wrong] = Row(tuple(self._proven), now, count, self._is_storing())
        self.agree()
        return wrong

    def agree(self) -> None:
        """A report agrees with the claims, or they are other ones now: a row begins anew."""
        self._pending.clear()
        self._proven.clear()
        self._num_doubled = self._ledger.claims.duplicates[Tier.GPU]

    def clear(self) -> None:
        """The rank says itself that its cache is empty, or is a new one: nothing is held against it."""
        self.agree()
        self.rows.clear()

    def check(self) -> None:
        """Verify the bounds."""
        assert len(self._proven) < self._limits.contradictions
        waiting = [shortfall.at for shortfall in self._pending]
        assert waiting == sorted(waiting)

    def _is_explained(self, shortfall: Shortfall) -> bool:
        """Whether the missing block has left GPU since the decision, or was not claimed there."""
        claims, blocks, index = self._ledger.claims, shortfall.blocks, shortfall.reused
        space = claims.index.find(blocks.key_space)
        if space is None:
            return True
        (ref,) = space.refs(blocks.keys[index : index + 1])
        if not claims.index.bits(ref, claims.slot) & (GPU | OBSERVED):
            return True
        return claims.departures[Tier.GPU].may_have_left(ref, shortfall.decided_at)

    def _is_proven(self, shortfall: Shortfall) -> bool:
        """Whether the engine shows by what it does that it did not have the missing block."""
        if self._was_stored_again(shortfall.missing):
            return True
        same = (s for s in (*self._proven, *self._pending) if s.missing == shortfall.missing)
        return any(s.at <= shortfall.decided_at or shortfall.at <= s.decided_at for s in same)

    def _was_stored_again(self, key: int) -> bool:
        """Whether a block was stored on GPU since the last agreement although it was held."""
        groups = self._ledger.groups.values()
        return any((g.doubled.get(key) or 0) > self._num_doubled for g in groups)

    def _is_silent_clear(self) -> bool:
        row = self._proven
        if self._ledger.has_sparse_groups:
            return False  # a hit needs more than the blocks that are claimed
        if any(s.reused or s.announced < _MIN_CLAIMED or not s.is_unbroken for s in row):
            return False
        if len({s.missing for s in row}) < len(row):
            return False
        return not self._is_storing() or any(self._was_stored_again(s.missing) for s in row)

    def _is_storing(self) -> bool:
        stored_at = self._ledger.last_gpu_store_at
        return stored_at is not None and stored_at > self._proven[0].decided_at
