"""Whether a worker of the vLLM flavour takes work: awake, asleep, or paused.

    awake ── sleep(1) ─▶ weights_offloaded ──┐
      ▲  └── sleep(2) ─▶ discard_all ────────┤ wake_up
      └──────────────────────────────────────┘         paused: beside any of them

Asleep or paused, what runs stands still and what comes waits; ``/health`` says nothing of it. Both empty the
caches, CPU tier included, where no request uses them; that is announced with the next step.

Source: vLLM 0.32.0, ``/sleep``, ``/wake_up``, ``/pause``, ``/resume``.
"""

from enum import StrEnum

from worker.ranks import RankSet


class SleepState(StrEnum):
    """As ``vllm:engine_sleep_state`` names it."""

    AWAKE = "awake"
    WEIGHTS_OFFLOADED = "weights_offloaded"
    DISCARD_ALL = "discard_all"


class Sleep:
    """Of all ranks together."""

    def __init__(self, ranks: RankSet) -> None:
        self._ranks = ranks
        self.state = SleepState.AWAKE
        self.is_paused = False

    @property
    def is_sleeping(self) -> bool:
        """Whether it is not awake."""
        return self.state is not SleepState.AWAKE

    def sleep(self, level: int) -> None:
        """Stand still; level 2 and above forgets the weights as well."""
        self.state = SleepState.WEIGHTS_OFFLOADED if level < 2 else SleepState.DISCARD_ALL
        self._stand_still()

    def wake_up(self) -> None:
        """Go on, unless paused."""
        self.state = SleepState.AWAKE
        self._go_on()

    def pause(self) -> None:
        """Stand still."""
        self.is_paused = True
        self._stand_still()

    def resume(self) -> None:
        """Go on, unless asleep."""
        self.is_paused = False
        self._go_on()

    def _stand_still(self) -> None:
        for runner in self._ranks:
            runner.pause()
            runner.flush_cache()

    def _go_on(self) -> None:
        if self.is_paused or self.is_sleeping:
            return
        for runner in self._ranks:
            runner.resume()
