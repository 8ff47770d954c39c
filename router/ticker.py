"""What time alone changes, done on time; a part that fails at it is counted and the others go on."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)


class Ticker:
    """Tells parts the time.

    Args:
        parts: name → what to call with the time, monotonic seconds.

    Attributes:
        failures: exceptions, by part. Each part's first one is logged.
    """

    def __init__(
        self,
        parts: Mapping[str, Callable[[float], None]],
        interval_s: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = dict(parts)
        self._interval_s = interval_s
        self._clock = clock
        self.failures: Counter[str] = Counter()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(self._interval_s)

    def tick(self) -> None:
        """Once."""
        now = self._clock()
        for name, part in self._parts.items():
            try:
                part(now)
            except Exception:  # the supervisor of the parts: requests outlive their faults
                self.failures[name] += 1
                if self.failures[name] == 1:
                    logger.exception("%s failed to tick; counted from here on", name)
