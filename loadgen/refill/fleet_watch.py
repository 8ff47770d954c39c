"""The fleet at rest: nothing runs, everything is published, and the router has applied all of it.

Only then can what the router claims be compared with what the workers hold.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from pydantic import ValidationError

from loadgen.control_port import ControlPort, ControlPortError
from loadgen.fleet import Fleet
from loadgen.refill.truth import RankTruth, WorkerTruth

_POLL_S = 0.003


class UnsettledError(Exception):
    """The fleet did not come to rest in time. The message says who did not."""


@dataclass(frozen=True, slots=True)
class RestingFleet:
    """What each worker holds, by the name under which the router knows it."""

    workers: dict[str, WorkerTruth]

    def rank(self, worker: str, dp_rank: int) -> RankTruth:
        """One rank's truth."""
        return self.workers[worker].ranks[dp_rank]

    @property
    def ranks(self) -> list[RankTruth]:
        """Every rank's truth."""
        return [rank for worker in self.workers.values() for rank in worker.ranks]

    def total(self, counter: str) -> int:
        """One of the workers' counters, over all of them."""
        return sum(worker.total(counter) for worker in self.workers.values())


class FleetWatch:
    """Waits for a fleet to come to rest, and tells what it holds then."""

    def __init__(self, fleet: Fleet, control: ControlPort, settle_s: float) -> None:
        self._fleet = fleet
        self._control = control
        self._settle_s = settle_s

    async def at_rest(self) -> RestingFleet:
        """Wait for rest. Costs one answer of each worker and one of the router a poll.

        Raises:
            UnsettledError: it does not come within the bound.
            ControlPortError: a worker or the router does not answer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settle_s
        while True:
            truths = await asyncio.gather(*(self._truth(url) for url in self._fleet.worker_urls))
            workers = dict(zip(self._names(), truths, strict=True))
            restless = await self._restless(workers)
            if not restless:
                return RestingFleet(workers)
            if loop.time() > deadline:
                raise UnsettledError(f"not at rest after {self._settle_s:.0f} s: {restless}")
            await asyncio.sleep(_POLL_S)

    def _names(self) -> Sequence[str]:
        return [url.removeprefix("http://") for url in self._fleet.worker_urls]

    async def _truth(self, url: str) -> WorkerTruth:
        try:
            async with self._fleet.session.get(f"{url}/debug/residency") as response:
                return WorkerTruth.model_validate_json(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValidationError) as error:
            raise ControlPortError(f"{url}/debug/residency: {error}") from error

    async def _restless(self, workers: dict[str, WorkerTruth]) -> list[str]:
        """Who is not at rest and why; the router is asked only when all workers are."""
        busy = [f"{name} is busy" for name, truth in workers.items() if not truth.is_idle]
        if busy:
            return busy
        applied = {
            (worker.worker, rank.dp_rank): rank.last_seq
            for worker in await self._control.workers()
            for rank in worker.ranks
        }
        return [
            f"{name}/{rank.dp_rank} published {rank.last_seq}, the router applied {heard}"
            for name, truth in workers.items()
            for rank in truth.ranks
            if (heard := applied.get((name, rank.dp_rank))) != rank.last_seq
        ]
