"""Virtual time: what is to happen, in order."""

import heapq
from collections.abc import Callable


class Agenda:
    """Steps by time; those of one time in the order they were put down.

    Attributes:
        now: seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._steps: list[tuple[float, int, Callable[[], object]]] = []
        self._num_steps = 0

    def at(self, time: float, step: Callable[[], object]) -> None:
        """Do something at a time, or at once where that is past."""
        self._num_steps += 1
        heapq.heappush(self._steps, (max(time, self.now), self._num_steps, step))

    def after(self, delay_s: float, step: Callable[[], object]) -> None:
        """Do something later."""
        self.at(self.now + delay_s, step)

    def run_until(self, end: float) -> None:
        """Let everything happen that happens by then."""
        while self._steps and self._steps[0][0] <= end:
            self.now, _, step = heapq.heappop(self._steps)
            step()
        self.now = end
