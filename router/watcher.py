"""One task a worker: learn it, with growing pauses until it answers, then watch it and learn it again.

Workers do not wait for each other. A worker is learned again from time to time, and whenever it is healthy
after having failed: it may have come back with other ports, another model, other adapters.

A worker in doubt, for a probe or a request's connection failed, is probed again after a quarter of the time that
it has been in doubt: an outage is over for us soon after it is over.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random

from protocol import WorkerSpec
from router.discovery import with_named_events
from router.probe import PartialWorkerError, ProbeError, Prober
from router.registry import Registry
from router.shelf import PromptShelf, Shelved
from router.storage_use import with_named_pool
from router.tokenizer_proof import Prover
from router.worker_record import WorkerRecord

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25
_PROVE_EVERY_S = 600.0
_SHARE = 4


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds. Pauses between attempts to reach a worker double up to ``interval_s``."""

    interval_s: float = 5.0
    refresh_s: float = 30.0


class Watcher:
    """Runs the watch tasks of all workers. ``run`` it once.

    Args:
        rng: spreads probes, so that workers are not all asked at once.
        prover: compares tokens with a worker's own once it has been learned; None for nobody.
    """

    def __init__(
        self,
        registry: Registry,
        shelf: PromptShelf,
        prober: Prober,
        times: WatchTimes,
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
        prover: Prover | None = None,
    ) -> None:
        self._prover = prover
        self._registry = registry
        self._shelf = shelf
        self._prober = prober
        self._times = times
        self._rng = rng
        self._clock = clock
        self._changed = asyncio.Event()
        # One thread: workers of one model share what the first one loads, even if its watch has ended.
        self._loader = ThreadPoolExecutor(1, "load")
        self._tasks: dict[WorkerRecord, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Workers were added or removed."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled: a task for each worker that is registered, and for no other."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    wanted = self._registry.records()
                    for record in self._tasks.keys() - set(wanted):
                        self._tasks.pop(record).cancel()
                    for record in wanted:
                        if record not in self._tasks:
                            self._tasks[record] = group.create_task(self._watch(record))
                    await self._changed.wait()
        finally:
            self._loader.shutdown(wait=False, cancel_futures=True)

    async def _watch(self, record: WorkerRecord) -> None:
        """Learn the worker, then watch it, until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while not await self._learn(record):
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, self._times.interval_s)
        learned_at, had_failed = self._clock(), False
        in_doubt_since: float | None = None
        while True:
            if in_doubt_since is not None:
                in_doubt_s = self._clock() - in_doubt_since
                await self._sleep(retry_pause_s(in_doubt_s, self._times.interval_s))
            elif await self._is_doubted(record):
                in_doubt_since = self._clock()
            is_ok = await self._probe(record)
            is_due = self._clock() - learned_at >= self._times.refresh_s
            is_doubtful = not is_ok or record.breaker.awaits_probe
            if is_ok and had_failed:
                record.proved = None
            if is_ok and (had_failed or is_due):
                is_doubtful |= not await self._learn(record)
                learned_at = self._clock()
            had_failed = not is_ok
            if not is_doubtful:
                in_doubt_since = None
            elif in_doubt_since is None:
                in_doubt_since = self._clock()

    async def _is_doubted(self, record: WorkerRecord) -> bool:
        """Wait until the next probe is due; True where a request could not connect meanwhile, or just before.

        Such news makes it due at once, though not within ``_FIRST_PAUSE_S`` of the last one.
        """
        interval_s = self._times.interval_s
        pause_s = min(_FIRST_PAUSE_S, interval_s)
        await self._sleep(pause_s)
        try:
            async with asyncio.timeout((interval_s - pause_s) * self._rng.uniform(0.8, 1.0)):
                await record.doubt.wait()
        except TimeoutError:
            return False
        return True

    async def _probe(self, record: WorkerRecord) -> bool:
        """Ask for its health once, and whether it sleeps; True if it is well. What fails in any way is a failed probe."""
        try:
            record.doubt.clear()
            fault = await self._prober.why_unhealthy(record.url)
            if self._is_current(record):
                self._registry.probed(record.worker, fault, self._clock())
            if fault is None and record.discovered is not None and record.discovered.tells_sleep:
                is_asleep = await self._prober.is_asleep(record.url)
                if is_asleep is not None and self._is_current(record):
                    self._registry.told_sleep(record.worker, is_asleep=is_asleep)
            return fault is None
        except Exception:  # the supervisor of one worker's probes
            logger.exception("probing worker %s failed", record.worker)
            return False

    async def _learn(self, record: WorkerRecord) -> bool:
        """One attempt; True if the worker is known afterwards. Why it is not is told to the registry."""
        worker, loop = record.worker, asyncio.get_running_loop()
        try:
            found = await self._prober.describe(worker, record.url)
            if record.events is not None:
                found = with_named_events(found, record.events)
            if record.storage_pool is not None:
                found = replace(found, spec=with_named_pool(found.spec, record.storage_pool))
            if record.max_in_flight is not None:
                bounded = replace(found.spec, max_in_flight=record.max_in_flight)
                found = replace(found, spec=bounded)
            shelved = await loop.run_in_executor(self._loader, self._shelf.load, found.spec)
            if self._is_current(record):
                self._registry.learned(worker, found, shelved, self._clock())
            await self._prove(record, found.spec, shelved)
            return True
        except PartialWorkerError as error:
            if self._is_current(record):
                self._registry.refused(worker, str(error))
            return False
        except ProbeError as error:
            reason = str(error)
        except Exception as error:  # the supervisor of what a worker says of itself
            logger.exception("learning worker %s failed", worker)
            reason = f"failed inside the router: {error!r}"
        if self._is_current(record):
            self._registry.not_learned(worker, reason)
        return False

    async def _prove(self, record: WorkerRecord, spec: WorkerSpec, shelved: Shelved) -> None:
        """Compare tokens with the worker's own, if it is long since that was done."""
        if self._prover is None:
            return
        if record.proved is not None:
            proved, model, at = record.proved
            is_same = proved == spec and model is shelved.model
            if is_same and self._clock() - at < _PROVE_EVERY_S:
                return
        proof = await self._prover.prove(spec, shelved.model)
        if proof is not None and self._is_current(record):
            record.proved = spec, shelved.model, self._clock()
            self._shelf.prove(record.worker, proof, self._clock())

    def _is_current(self, record: WorkerRecord) -> bool:
        """Is it still the worker of its name? One that was removed, and perhaps added again, is not."""
        return self._registry.find(record.worker) is record

    async def _sleep(self, seconds: float) -> None:
        """About that long."""
        await asyncio.sleep(seconds * self._rng.uniform(0.8, 1.0))


def retry_pause_s(in_doubt_s: float, interval_s: float) -> float:
    """How long to wait before a worker is probed again that has been in doubt for so long."""
    return min(interval_s, max(_FIRST_PAUSE_S, in_doubt_s / _SHARE))
