"""When to look behind a silence: soon after something was unsure, seldom where all is well."""


class SilenceClock:
    """How long a stream has been silent. All operations O(1).

    Args:
        settle_s: silence that is looked behind at first, and after every question but a look of this kind.
        silence_s: silence that is looked behind where the last look found nothing missing.

    Attributes:
        since: when the stream last spoke, set by whoever hears it; None before the first time.
    """

    __slots__ = ("_settle_s", "_silence_s", "_wait_s", "since")

    def __init__(self, settle_s: float, silence_s: float) -> None:
        self._settle_s = settle_s
        self._silence_s = silence_s
        self._wait_s = settle_s
        self.since: float | None = None

    def settle(self, now: float, *, is_routine: bool) -> None:
        """A question is over; ``is_routine`` where it was a look behind a silence and nothing came of it."""
        self._wait_s = self._silence_s if is_routine else self._settle_s
        self.since = now

    def begin_if_due(self, now: float) -> bool:
        """Whether to look; if so, the next time comes after another silence. Never before something was heard."""
        if self.since is None or now - self.since < self._wait_s:
            return False
        self.since = now
        return True
