"""When claims in doubt are to be rebuilt: soon, and after each failure half as often."""

_MAX_DOUBLINGS = 16


class RepairClock:
    """Time of the next repair. All operations O(1).

    Args:
        first_s: wait before the first repair; doubles with each that was begun since the last success.
        max_s: upper bound of the wait.
    """

    __slots__ = ("_first_s", "_max_s", "_num_begun", "_repair_at")

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._num_begun = 0
        self._repair_at: float | None = None

    def schedule(self, now: float) -> None:
        """A repair is needed; one that was scheduled is put off."""
        wait_s = self._first_s * 2 ** min(self._num_begun, _MAX_DOUBLINGS)
        self._repair_at = now + min(wait_s, self._max_s)

    def ensure(self, now: float) -> None:
        """A repair is needed; one that was scheduled stays where it is."""
        if self._repair_at is None:
            self.schedule(now)

    def cancel(self) -> None:
        """No repair is needed, or none would help."""
        self._repair_at = None

    def succeed(self) -> None:
        """The publisher answers: waits are short again."""
        self._num_begun = 0

    def begin_if_due(self, now: float) -> bool:
        """Whether it is time; if so, the next attempt is scheduled in case this one fails."""
        if self._repair_at is None or now < self._repair_at:
            return False
        self._num_begun += 1
        self.schedule(now)
        return True
