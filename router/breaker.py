"""A circuit breaker per worker: stop sending to one that fails, and always try it again.

    closed ──N faults in a row──▶ open ──cool-down over──▶ half open ──success──▶ closed
                                   ▲                           │
                                   └──────── any fault ────────┘  (cool-down doubled, up to the maximum)

Faults are answers of 5xx other than 503, and transport errors. 4xx is the client's, 429 and 503 are
back-pressure: they prove that the worker lives. A half-open worker is a candidate like any other, so it
cannot stay half open for want of being tried.
"""

from dataclasses import dataclass
from enum import StrEnum

from scoring.brain import OutcomeKind

_FAULTS = frozenset(
    {
        OutcomeKind.WORKER_ERROR,
        OutcomeKind.CONNECT_FAILED,
        OutcomeKind.BROKEN_OFF,
        OutcomeKind.TIMED_OUT,
    }
)
_SUCCESSES = frozenset({OutcomeKind.COMPLETED, OutcomeKind.CLIENT_ERROR, OutcomeKind.BUSY})


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """``num_faults`` in a row open the circuit for ``cool_down_s``, doubled up to ``max_cool_down_s``."""

    num_faults: int = 5
    cool_down_s: float = 5.0
    max_cool_down_s: float = 60.0


class Breaker:
    """Of one worker. Pure: ``now`` is monotonic seconds."""

    __slots__ = ("_cool_down_s", "_limits", "_opened_at", "num_faults", "num_opened", "state")

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self._cool_down_s = limits.cool_down_s
        self._opened_at = 0.0
        self.state = BreakerState.CLOSED
        self.num_faults = 0
        self.num_opened = 0

    def record(self, kind: OutcomeKind, now: float) -> None:
        """An attempt ended. Attempts that ended while the circuit was open say nothing new."""
        self.tick(now)
        if self.state is BreakerState.OPEN:
            return
        if kind in _SUCCESSES:
            self._close()
        elif kind in _FAULTS:
            self.num_faults += 1
            if self.state is BreakerState.HALF_OPEN or self.num_faults >= self._limits.num_faults:
                self._open(now)

    def tick(self, now: float) -> None:
        """Half open the circuit once its cool-down is over."""
        if self.state is BreakerState.OPEN and now >= self._opened_at + self._cool_down_s:
            self.state = BreakerState.HALF_OPEN

    def check(self) -> None:
        """Verify the invariants."""
        assert self.num_faults >= 0
        assert self._limits.cool_down_s <= self._cool_down_s <= self._limits.max_cool_down_s
        if self.state is BreakerState.CLOSED:
            assert self.num_faults < self._limits.num_faults, self.num_faults

    def _open(self, now: float) -> None:
        if self.state is BreakerState.HALF_OPEN:
            self._cool_down_s = min(2 * self._cool_down_s, self._limits.max_cool_down_s)
        self.state = BreakerState.OPEN
        self.num_opened += 1
        self._opened_at = now

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self.num_faults = 0
        self._cool_down_s = self._limits.cool_down_s
