"""How often something may be done: a bucket of tokens that fills at a steady rate.

Each take needs a whole token; a bucket that was not used for a while holds ``burst`` of them at most.
"""


class TokenBucket:
    """Starts full.

    Args:
        rate: tokens per second.
        burst: that it can hold; at least 1.
        now: monotonic seconds.
    """

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._filled_at = now

    def take(self, now: float) -> float:
        """Take a token. 0.0 where there was one, else the seconds until there will be; nothing is taken then."""
        tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if tokens >= 1.0:
            self._tokens = tokens - 1.0
            return 0.0
        self._tokens = tokens
        return (1.0 - tokens) / self._rate

    def check(self) -> None:
        """Verify the invariants."""
        assert 0.0 <= self._tokens <= self._burst, self._tokens
        assert self._rate > 0.0, self._rate
        assert self._burst >= 1.0, self._burst
