"""A circuit breaker per worker: stop sending to one that fails, and always try it again.

    closed ──N faults in a row──▶ open ──cool-down over──▶ half open ──success──▶ closed
                                   ▲                           │
                                   └──────── any fault ────────┘  (cool-down doubled, up to the maximum)

A worker that was restarted does not wait for that: where it could not be reached when the circuit opened, or
since, the next good probe half opens it. And one request may try an open one where nobody else can take it: if
it succeeds the circuit closes, if not it stays open for as long as it would have been. Either way at most
once in a 20th of the cool-down, so that a worker which is dead gets no more than that.

Faults are answers of 5xx other than 503, and transport errors; but a kept connection that breaks at once may have been
closed while it idled, and says nothing. 4xx is the client's, 429 and 503 are back-pressure: they prove that the worker
lives. A half-open worker is a candidate like any other, so it
cannot stay half open for want of being tried.
"""

from dataclasses import dataclass
from enum import StrEnum

from scoring.brain import OutcomeKind

_WORDS = {
    OutcomeKind.WORKER_ERROR: "answered with an error of the server (5xx)",
    OutcomeKind.CONNECT_FAILED: "could not connect",
    OutcomeKind.BROKEN_OFF: "the answer broke off",
    OutcomeKind.TIMED_OUT: "no answer in time",
}
_FAULTS = frozenset(_WORDS)
_EARLY = 20  # trials before the cool-down is over, in the time that it takes
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

    __slots__ = (
        "_cool_down_s",
        "_is_unreachable",
        "_last_fault",
        "_limits",
        "_opened_at",
        "_tried_at",
        "num_faults",
        "num_opened",
        "num_trials",
        "state",
    )

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self._cool_down_s = limits.cool_down_s
        self._opened_at = 0.0
        self._tried_at: float | None = None  # since it opened
        self._last_fault: OutcomeKind | None = None
        self._is_unreachable = False  # when it opened, or at a probe since
        self.state = BreakerState.CLOSED
        self.num_faults = 0
        self.num_opened = 0
        self.num_trials = 0

    @property
    def half_opens_at(self) -> float:
        """The end of the cool-down."""
        return self._opened_at + self._cool_down_s

    @property
    def why_open(self) -> str | None:
        """What happened to the requests that opened it; None while it is closed."""
        if self.state is BreakerState.CLOSED or self._last_fault is None:
            return None
        many = (
            "the last request" if self.num_faults == 1 else f"{self.num_faults} requests in a row"
        )
        return f"{many} failed: {_WORDS[self._last_fault]}"

    @property
    def awaits_probe(self) -> bool:
        """Would a good probe half open it?"""
        return self.state is BreakerState.OPEN and self._is_unreachable

    def record(self, kind: OutcomeKind, now: float) -> None:
        """An attempt ended. Those that ended while the circuit was open say nothing new, unless one of them
        is a trial's success."""
        self.tick(now)
        if self.state is BreakerState.OPEN:
            if self._tried_at is not None and kind in _SUCCESSES:
                self._close()
            return
        if kind in _SUCCESSES:
            self._close()
        elif kind in _FAULTS:
            self.num_faults += 1
            self._last_fault = kind
            if self.state is BreakerState.HALF_OPEN or self.num_faults >= self._limits.num_faults:
                self._open(kind, now)

    def probed(self, now: float, *, is_ok: bool) -> None:
        """A probe of the worker was answered, or not: the circuit half opens if the worker is back."""
        if self.state is not BreakerState.OPEN:
            return
        if not is_ok:
            self._is_unreachable = True
        elif self._is_unreachable and self._has_waited(now):
            self.state = BreakerState.HALF_OPEN

    def may_try(self, now: float) -> bool:
        """May one request try it, though it is open?"""
        return self.state is BreakerState.OPEN and self._has_waited(now)

    def tried(self, now: float) -> None:
        """One does."""
        self._tried_at = now
        self.num_trials += 1

    def tick(self, now: float) -> None:
        """Half open the circuit once its cool-down is over."""
        if self.state is BreakerState.OPEN and now >= self.half_opens_at:
            self.state = BreakerState.HALF_OPEN

    def check(self) -> None:
        """Verify the invariants."""
        assert self.num_faults >= 0
        assert self._limits.cool_down_s <= self._cool_down_s <= self._limits.max_cool_down_s
        if self.state is BreakerState.CLOSED:
            assert self.num_faults < self._limits.num_faults, self.num_faults

    def _has_waited(self, now: float) -> bool:
        last = self._opened_at if self._tried_at is None else self._tried_at
        return now >= last + self._cool_down_s / _EARLY

    def _open(self, kind: OutcomeKind, now: float) -> None:
        if self.state is BreakerState.HALF_OPEN:
            self._cool_down_s = min(2 * self._cool_down_s, self._limits.max_cool_down_s)
        self.state = BreakerState.OPEN
        self.num_opened += 1
        self._opened_at = now
        self._tried_at = None
        self._is_unreachable = kind is OutcomeKind.CONNECT_FAILED

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self.num_faults = 0
        self._cool_down_s = self._limits.cool_down_s
