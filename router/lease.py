"""One plan's lease: whatever becomes of the attempt, the brain hears of its end exactly once."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from protocol import Rank
from scoring.brain import Brain, Outcome, OutcomeKind, Plan


class OutcomeListener(Protocol):
    """Wants to know how each attempt ended."""

    def attempt_ended(self, rank: Rank, kind: OutcomeKind, now: float) -> None:
        """An attempt on ``rank`` is over."""


class Lease:
    """The claim of one attempt on one rank.

    Entered right after planning, with nothing awaited in between, and left on every path: by its own
    ``end``, or, when the block is left without one (the client closed, the process stops, a bug), as
    closed by the client, which blames nobody. Releasing awaits nothing, so no cancellation can tear it.

    Attributes:
        first_byte_at: of content, monotonic seconds; None before it.
    """

    __slots__ = ("_brain", "_clock", "_has_ended", "_listener", "first_byte_at", "plan")

    def __init__(
        self, brain: Brain, plan: Plan, clock: Callable[[], float], listener: OutcomeListener
    ) -> None:
        self.plan = plan
        self._brain = brain
        self._clock = clock
        self._listener = listener
        self.first_byte_at: float | None = None
        self._has_ended = False

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._has_ended:
            self.end(Outcome(OutcomeKind.CLIENT_CLOSED))

    def first_byte(self) -> None:
        """The first bytes of the answer's content came. Idempotent."""
        if self.first_byte_at is None:
            self.first_byte_at = now = self._clock()
            self._brain.first_byte(self.plan.plan_id, now)

    def end(self, outcome: Outcome) -> None:
        """Release the claim. The first call counts, later ones do nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        now = self._clock()
        self._brain.finish(self.plan.plan_id, outcome, now)
        self._listener.attempt_ended(self.plan.rank, outcome.kind, now)
