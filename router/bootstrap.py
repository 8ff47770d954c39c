"""What a starting router takes over from one that runs: the claims of each worker and storage pool, up to a batch.

    learned ──▶ subscribed, nothing is taken from its sockets ──▶ a sibling's dump is loaded ──▶ its streams
                                                                  begin behind the mark ──▶ the sockets are read

What a worker publishes meanwhile waits at its socket, so nothing is missed between dump and stream. Whether
that is so is for the stream to find out (``EventStream.resume``): by a replay of the mark where there is one,
else by the first live number. A rank that is not taken over recovers by itself, as all do without siblings:
that is the better way where the sibling does not know it whole and the engine can replay.

A storage pool is taken over like a worker: by its key, with one source of its own or none.

Workers do not wait for each other, but for room at a sibling: it tells of four at a time. One that hangs has its
share of the time and no more, and those after it are asked for the ranks that are still missing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

from indexer.actions import ForgetReason
from indexer.dump_format import DumpError, PoolLine, RankLine
from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.load import IndexLoad
from indexer.subscriber import EventSubscriber
from indexer.trust import Trust
from protocol import EventSource, Rank, WorkerId, WorkerSpec, pool_key
from router.plain_text import plain
from router.sibling import SiblingError

logger = logging.getLogger(__name__)

_MAX_AT_ONCE = 4  # dumps of one sibling
_PATIENCE = 3


class BootstrapOutcome(StrEnum):
    """How one attempt to take a worker or storage pool over from one sibling ended."""

    LOADED = "loaded"
    UNKNOWN = "unknown"  # the sibling knows no rank of it well enough
    FAILED = "failed"  # no answer, or none that can be loaded
    TIMED_OUT = "timed_out"
    BROKEN = "broken"  # a fault of this router's own


class _Dumps(Protocol):
    """Where dumps come from."""

    def dump(self, url: str, worker: str) -> AsyncGenerator[bytes, None]:
        """The lines of a sibling's dump of one worker.

        Raises:
            SiblingError: there is none.
        """


@dataclass(frozen=True, slots=True)
class Heirs:
    """Who takes over."""

    index: FleetIndex
    intake: Intake
    subscriber: EventSubscriber


@dataclass(slots=True, eq=False)
class _Takeover:
    """One worker's, as it was learned at one time, or one storage pool's.

    Attributes:
        key: the worker; or what a pool is asked for by.
        missing: ranks that were not taken over so far; of a pool 0.
    """

    key: WorkerId
    sources: tuple[EventSource, ...]
    missing: set[int]
    is_pool: bool = False

    @property
    def name(self) -> str:
        """For the log."""
        return f"storage {self.key}" if self.is_pool else f"worker {self.key}"


class Bootstrap:
    """Takes workers over from siblings. ``run`` it once.

    A worker has one takeover at a time: one that begins ends the one before, which loads nothing more, and the
    sockets are the last one's. Whatever fails in one is counted and logged, and its worker recovers by itself.

    Args:
        siblings: URLs of control ports, asked in this order, each for its share of ``timeout_s``.
        timeout_s: for one worker, three times that where siblings are busy with others: then it recovers by
            itself.

    Attributes:
        outcomes: of attempts.
    """

    def __init__(
        self,
        heirs: Heirs,
        dumps: _Dumps,
        siblings: Sequence[str],
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._heirs = heirs
        self._dumps = dumps
        self._siblings = siblings
        self._share_s = timeout_s / max(len(siblings), 1)
        self._patience_s = _PATIENCE * timeout_s
        self._clock = clock
        self._current: dict[WorkerId, _Takeover] = {}  # until its sockets are resumed
        self._begun: dict[WorkerId, _Takeover] = {}  # those of them without a task so far
        self._tasks: dict[WorkerId, asyncio.Task[None]] = {}  # the last one of each worker
        self._has_begun = asyncio.Event()
        self._room = {sibling: asyncio.Semaphore(_MAX_AT_ONCE) for sibling in siblings}
        self.outcomes: Counter[BootstrapOutcome] = Counter()

    def begin(self, spec: WorkerSpec) -> None:
        """A worker was learned and subscribed to: nothing is taken from its sockets until it is taken over."""
        self.cancel(spec.worker)
        if not self._siblings or not spec.sources:
            return
        wanted = {rank.dp_rank for rank in spec.ranks}
        wanted |= {source.rank.dp_rank for source in spec.sources}
        self._begin(_Takeover(spec.worker, spec.sources, wanted))

    def begin_pool(self, key: WorkerId, sources: tuple[EventSource, ...] = ()) -> None:
        """A storage pool is used; where its own events are heard they were subscribed to, and wait likewise."""
        self.cancel(key)
        if self._siblings:
            self._begin(_Takeover(key, sources, {0}, is_pool=True))

    def _begin(self, takeover: _Takeover) -> None:
        for source in takeover.sources:
            self._heirs.subscriber.pause(source)
        self._current[takeover.key] = self._begun[takeover.key] = takeover
        self._has_begun.set()

    def cancel(self, worker: WorkerId) -> None:
        """The worker was removed, or is another one: nothing more is loaded of it. Idempotent."""
        takeover = self._current.pop(worker, None)
        if takeover is None:
            return
        if self._begun.pop(worker, None) is None and worker in self._tasks:
            self._tasks[worker].cancel()
        self._resume_sockets(takeover)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._has_begun.wait()
                self._has_begun.clear()
                while self._begun:
                    worker = next(iter(self._begun))
                    before = self._tasks.get(worker)
                    part = self._supervise(self._begun.pop(worker), before)
                    task = self._tasks[worker] = group.create_task(part)
                    task.add_done_callback(partial(self._ended, worker))

    def check(self) -> None:
        """Verify that every takeover under way has its sockets to itself, and a task or the prospect of one."""
        for worker, takeover in self._current.items():
            assert takeover.key == worker
            assert worker in self._begun or worker in self._tasks, worker
        for worker, takeover in self._begun.items():
            assert self._current.get(worker) is takeover, worker

    def _ended(self, worker: WorkerId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(worker) is task:
            del self._tasks[worker]

    async def _supervise(self, takeover: _Takeover, before: asyncio.Task[None] | None) -> None:
        """One takeover, after the one before has come to its end; then the sockets are read, however it ended."""
        worker = takeover.key
        try:
            async with asyncio.timeout(self._patience_s):
                if before is not None:
                    await asyncio.wait([before])
                await self._take_over(takeover)
        except TimeoutError:
            self.outcomes[BootstrapOutcome.TIMED_OUT] += 1
            logger.warning("no sibling has told of %s in time", takeover.name)
        except Exception:  # the supervisor of takeovers
            self.outcomes[BootstrapOutcome.BROKEN] += 1
            logger.exception("%s cannot be taken over; it recovers by itself", takeover.name)
        finally:
            if self._current.get(worker) is takeover:
                del self._current[worker]
                self._resume_sockets(takeover)

    def _resume_sockets(self, takeover: _Takeover) -> None:
        for source in takeover.sources:
            self._heirs.subscriber.resume(source)

    async def _take_over(self, takeover: _Takeover) -> None:
        for sibling in self._siblings:
            async with self._room[sibling]:
                outcome = await self._ask(sibling, takeover)
            self.outcomes[outcome] += 1
            if not takeover.missing:
                return

    async def _ask(self, sibling: str, takeover: _Takeover) -> BootstrapOutcome:
        """One attempt; never longer than its share."""
        try:
            async with asyncio.timeout(self._share_s):
                return await self._load(sibling, takeover)
        except TimeoutError:
            logger.warning("sibling %s takes too long to tell of %s", sibling, takeover.name)
            return BootstrapOutcome.TIMED_OUT
        except (SiblingError, DumpError) as error:
            reason = plain(str(error))
            logger.warning("sibling %s cannot tell of %s: %s", sibling, takeover.name, reason)
            return BootstrapOutcome.FAILED

    async def _load(self, sibling: str, takeover: _Takeover) -> BootstrapOutcome:
        """Load a dump, a line a turn. The ranks that are whole are taken over however it ends."""
        key = takeover.key
        wants = _Wants(key, takeover.sources, self._heirs.intake.can_resume)
        loading = IndexLoad(self._heirs.index, self._clock(), wants)
        try:
            async with aclosing(self._dumps.dump(sibling, key)) as lines:
                async for line in lines:
                    loading.feed(line)
                    await asyncio.sleep(0)
            loading.finish()
        finally:
            loading.abort()
            begun = [self._begin_stream(takeover, whole) for whole in loading.loaded]
            if loading.pools:
                begun.append(self._begin_pool_stream(takeover, loading.pools))
            elif loading.num_filled and not takeover.sources:
                begun.append(True)
                takeover.missing.clear()
        if not any(begun):
            return BootstrapOutcome.UNKNOWN
        logger.info("took %s over from %s, ranks: %d", takeover.name, sibling, sum(begun))
        return BootstrapOutcome.LOADED

    def _begin_stream(self, takeover: _Takeover, line: RankLine) -> bool:
        """Go on behind what was loaded; False where no stream can, and it is forgotten."""
        assert line.seq is not None
        heirs, rank = self._heirs, Rank(WorkerId(line.worker), line.dp_rank)
        if heirs.index.mark(rank) != line.seq:
            return False  # removed or forgotten since
        is_current = self._current.get(rank.worker) is takeover
        if is_current and heirs.intake.resume(
            rank, line.seq, line.digests, line.trust, self._clock()
        ):
            takeover.missing.discard(rank.dp_rank)
            return True
        heirs.index.forget(rank, ForgetReason.LOAD_FAILED, self._clock())
        return False

    def _begin_pool_stream(self, takeover: _Takeover, lines: Sequence[PoolLine]) -> bool:
        """Go on with a pool's own events; False where no stream can, and what they told is forgotten.

        Args:
            lines: at least one; pools that publish together rest on the same batch.
        """
        first, heirs, rank = lines[0], self._heirs, Rank(takeover.key)
        assert first.seq is not None
        pools = {line.pool for line in lines}
        if (
            self._current.get(takeover.key) is takeover
            and heirs.index.pools.is_restored(takeover.key, first.seq, pools)
            and heirs.intake.resume(rank, first.seq, first.digests, first.trust, self._clock())
        ):
            takeover.missing.clear()
            return True
        heirs.index.forget(rank, ForgetReason.LOAD_FAILED, self._clock())
        return False


class _Wants:
    """Which ranks of a dump are better than what the worker's own replay would bring, and which pools.

    Args:
        can_resume: whether a rank's stream could go on behind what is loaded.
    """

    def __init__(
        self,
        key: WorkerId,
        sources: tuple[EventSource, ...],
        can_resume: Callable[[Rank], bool],
    ) -> None:
        self._key = key
        self._can_resume = can_resume
        self._own = {source.rank.dp_rank: source for source in sources}
        self._only = sources[0] if len(sources) == 1 else None

    def __call__(self, line: RankLine | PoolLine) -> bool:
        key = pool_key(line.pool) if isinstance(line, PoolLine) else line.worker
        dp_rank = 0 if isinstance(line, PoolLine) else line.dp_rank
        source = self._own.get(dp_rank, self._only)
        if key != self._key or source is None:
            return False
        if not self._can_resume(Rank(self._key, dp_rank)):
            return False
        if not line.digests or line.digests[-1][0] != line.seq:
            return False  # nothing would tell whether the publisher is the same one
        if line.trust is Trust.EXACT:
            return True
        return line.trust is Trust.JOINED and source.replay_endpoint is None
