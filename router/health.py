"""Active health of one worker: unhealthy after several failed probes in a row, healthy after one good one.

One slow answer of a busy worker is no death, so a single failure changes nothing; and health decides
about new requests only, never about those that run.
"""


class HealthRecord:
    """Of one worker. Pure."""

    __slots__ = ("_threshold", "is_healthy", "num_failures")

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self.is_healthy = True
        self.num_failures = 0

    def record(self, *, is_ok: bool) -> None:
        """One probe was answered, well or not."""
        if is_ok:
            self.num_failures = 0
            self.is_healthy = True
            return
        self.num_failures += 1
        if self.num_failures >= self._threshold:
            self.is_healthy = False

    def check(self) -> None:
        """Verify the invariants."""
        assert self.is_healthy == (self.num_failures < self._threshold), self.num_failures
