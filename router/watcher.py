"""One task a worker: learn it, with growing pauses until it answers, then watch it and learn it again.

Workers do not wait for each other. A worker is learned again from time to time, and whenever it is healthy
after having failed: it may have come back with other ports, another model, other adapters.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from protocol import WorkerId
from router.probe import ProbeError, Prober
from router.registry import Registry
from router.shelf import PromptShelf

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds. Pauses between attempts to reach a worker double up to ``interval_s``."""

    interval_s: float = 5.0
    refresh_s: float = 30.0


class Watcher:
    """Runs the watch tasks of all workers.

    Args:
        rng: spreads probes, so that workers are not all asked at once.
    """

    def __init__(
        self,
        registry: Registry,
        shelf: PromptShelf,
        prober: Prober,
        times: WatchTimes,
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._shelf = shelf
        self._prober = prober
        self._times = times
        self._rng = rng
        self._clock = clock
        self._changed = asyncio.Event()
        self._loading = asyncio.Lock()
        self._tasks: dict[tuple[WorkerId, str], asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Workers were added or removed."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled: a task for each worker that is registered, and for no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                wanted = [(record.worker, record.url) for record in self._registry.records()]
                for key in self._tasks.keys() - set(wanted):
                    self._tasks.pop(key).cancel()
                for key in wanted:
                    if key not in self._tasks:
                        self._tasks[key] = group.create_task(self._watch(*key))
                await self._changed.wait()

    async def _watch(self, worker: WorkerId, url: str) -> None:
        pause_s = _FIRST_PAUSE_S
        while not await self._learn(worker, url):
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, self._times.interval_s)
        learned_at, had_failed = self._clock(), False
        while True:
            await self._sleep(self._times.interval_s)
            is_ok = await self._prober.is_healthy(url)
            self._registry.probed(worker, is_ok=is_ok)
            is_due = self._clock() - learned_at >= self._times.refresh_s
            if is_ok and (had_failed or is_due):
                await self._learn(worker, url)
                learned_at = self._clock()
            had_failed = not is_ok

    async def _learn(self, worker: WorkerId, url: str) -> bool:
        """One attempt; True if the worker is known afterwards. Whatever it says of itself ends no watch."""
        try:
            found = await self._prober.describe(worker, url)
            async with self._loading:  # workers of one model share what the first one loads
                shelved = await asyncio.to_thread(self._shelf.load, found.spec)
            self._registry.learned(worker, found, shelved, self._clock())
        except ProbeError as error:
            self._registry.not_learned(worker, str(error))
            return False
        except Exception as error:  # the supervisor of one worker's watch
            logger.exception("learning worker %s failed", worker)
            self._registry.not_learned(worker, f"failed inside the router: {error!r}")
            return False
        return True

    async def _sleep(self, seconds: float) -> None:
        """About that long."""
        await asyncio.sleep(seconds * self._rng.uniform(0.8, 1.0))
