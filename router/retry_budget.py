"""How many attempts a whole fleet may be asked to repeat: a share of its requests of late, and some beside.

    now ─ WINDOW_S ├──┬──┬──┬──┬──┬──┬──┬──┬──┬──┤ now      a slot a second: requests begun, attempts repeated

Each request's own bound of attempts keeps it from wandering; but where every worker fails, or is overloaded, it would
multiply the load that they fail at. So all requests share one budget. A repeated attempt is one more than each
request's first, whatever it follows. Once the budget is spent, what the worker answered, or the fault, is passed on.
"""

from dataclasses import dataclass

WINDOW_S = 10
"""Slots, and seconds, that are looked back upon."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Within ``WINDOW_S`` at most ``floor`` attempts are repeated, and a ``share`` of the requests beside."""

    share: float = 0.2
    floor: int = 100


class RetryBudget:
    """Of all requests of a router. Pure: ``now`` is monotonic seconds. Every call is O(1)."""

    __slots__ = ("_begun", "_limits", "_num_begun", "_num_spent", "_second", "_spent")

    def __init__(self, limits: RetryLimits = RetryLimits()) -> None:
        self._limits = limits
        self._begun = [0] * WINDOW_S
        self._spent = [0] * WINDOW_S
        self._num_begun = 0
        self._num_spent = 0
        self._second = 0

    def began(self, now: float) -> None:
        """A request begins."""
        second = int(now)
        if second > self._second:
            self._roll(second)
        self._begun[self._second % WINDOW_S] += 1
        self._num_begun += 1

    def left(self, now: float, num_in_flight: int) -> float:
        """Attempts that may be repeated at this moment; 1.0 or more where one may.

        Args:
            num_in_flight: requests, whose share counts where they are more than have begun of late: what is orphaned
                when a worker dies may have begun long ago.
        """
        second = int(now)
        if second > self._second:
            self._roll(second)
        num_requests = max(self._num_begun, num_in_flight)
        limits = self._limits
        return limits.floor + limits.share * num_requests - self._num_spent

    def spend(self, now: float) -> None:
        """One is repeated."""
        second = int(now)
        if second > self._second:
            self._roll(second)
        self._spent[self._second % WINDOW_S] += 1
        self._num_spent += 1

    def give_back(self, spent_at: float) -> None:
        """One that was to be repeated then was not."""
        if self._second - int(spent_at) < WINDOW_S:
            self._spent[int(spent_at) % WINDOW_S] -= 1
            self._num_spent -= 1

    def check(self) -> None:
        """Verify the invariants."""
        assert len(self._begun) == len(self._spent) == WINDOW_S
        assert self._num_begun == sum(self._begun), self._begun
        assert self._num_spent == sum(self._spent), self._spent
        assert min(self._begun + self._spent) >= 0

    def _roll(self, second: int) -> None:
        """Let go of the slots that are too old."""
        for passed in range(max(self._second + 1, second - WINDOW_S + 1), second + 1):
            slot = passed % WINDOW_S
            self._num_begun -= self._begun[slot]
            self._num_spent -= self._spent[slot]
            self._begun[slot] = self._spent[slot] = 0
        self._second = second
