"""Routers that follow events over real sockets, and dumps in place of siblings."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

from indexer import Backlog, EventSubscriber, FleetIndex, Intake, SocketLimits, Trust
from indexer.storage_rules import StorageRules
from protocol import EventSource, Rank, Tier, WorkerId, WorkerSpec
from router.bootstrap import Bootstrap, Heirs
from router.index_dump import dump_index
from router.sibling import SiblingError
from tests.indexer.loopback import Changes, LoopbackPublisher

NO_POOLS = StorageRules()
QUICK = SocketLimits(tick_s=0.02, reconnect_s=0.01, reconnect_max_s=0.05)


class Router:
    """What of a router follows events."""

    def __init__(self, changes: Changes, storage: StorageRules = NO_POOLS) -> None:
        self.changes = changes
        self.index = FleetIndex(storage=storage)
        backlog = Backlog(self.index)
        self.intake = Intake(backlog)
        self.subscriber = EventSubscriber(self.intake, self._clock, limits=QUICK, backlog=backlog)

    def _clock(self) -> float:
        self.changes.note()
        return time.monotonic()

    @asynccontextmanager
    async def running(self, *more: Coroutine[None, None, None]) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(part) for part in (self.subscriber.run(), *more)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def follow(self, spec: WorkerSpec, bootstrap: Bootstrap | None = None) -> None:
        """As the registry does with a worker that it has learned."""
        self.index.add_worker(spec, time.monotonic())
        for where in spec.sources:
            self.subscriber.subscribe(where)
        if bootstrap is not None:
            bootstrap.begin(spec)

    def blocks(self, worker: str) -> set[int | bytes]:
        return set(self.index.residency(Rank(WorkerId(worker)))[Tier.GPU])

    def trust(self, worker: str) -> Trust:
        return self.index.trust(Rank(WorkerId(worker)), time.monotonic())

    async def until(self, is_so: Callable[[], object]) -> None:
        await self.changes.until(is_so)


def worker_of(publisher: LoopbackPublisher, name: str = "w", *, replays: bool = True) -> WorkerSpec:
    source = publisher.source(name)
    if not replays:
        source = EventSource(source.rank, source.endpoint)
    return WorkerSpec(source.rank.worker, f"http://{name}", "m", block_size=1, sources=(source,))


class Told:
    """Dumps as siblings would tell them, by URL, or by worker; None hangs."""

    def __init__(self, **dumps: Sequence[bytes] | None) -> None:
        self._dumps = dumps

    async def dump(self, url: str, worker: str) -> AsyncGenerator[bytes, None]:
        lines = self._dumps.get(url, self._dumps.get(worker, ()))
        if lines is None:
            await asyncio.Event().wait()
        if not lines:
            raise SiblingError(f"{url} is not there")
        for line in lines or ():
            yield line


async def lines_of(sibling: Router, worker: str = "w") -> list[bytes]:
    """What the sibling's control port tells."""
    told = dump_index(sibling.index, sibling.intake, time.monotonic, worker)
    return [line.rstrip(b"\n") async for line in told]


def heir(router: Router, told: Told, *urls: str, timeout_s: float = 5.0) -> Bootstrap:
    heirs = Heirs(router.index, router.intake, router.subscriber)
    return Bootstrap(heirs, told, urls, timeout_s, time.monotonic)


@asynccontextmanager
async def sibling_that_knows(
    publisher: LoopbackPublisher, spec: WorkerSpec
) -> AsyncIterator[Router]:
    """A router that has heard everything from the first batch on."""
    router = Router(publisher_changes(publisher))
    async with router.running():
        router.follow(spec)
        await router.until(lambda: publisher.num_subscribers > 0)
        for block in range(10):
            publisher.publish(block)
        await router.until(lambda: router.blocks("w") == set(range(10)))
        yield router


def publisher_changes(publisher: LoopbackPublisher) -> Changes:
    return publisher._changes
