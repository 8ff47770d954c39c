"""What a starting router takes over from one that runs: the claims of each worker, up to a batch.

    learned ──▶ subscribed, nothing is taken from its sockets ──▶ a sibling's dump is loaded ──▶ its streams
                                                                  begin behind the mark ──▶ the sockets are read

What a worker publishes meanwhile waits at its socket, so nothing is missed between dump and stream. Whether
that is so is for the stream to find out (``EventStream.resume``): by a replay of the mark where there is one,
else by the first live number. A rank that is not taken over recovers by itself, as all do without siblings:
that is the better way where the sibling does not know it whole and the engine can replay.

Workers do not wait for each other, and a sibling that hangs has its share of the time and no more.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from indexer.dump_format import DumpError, RankLine
from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.load import IndexLoad
from indexer.subscriber import EventSubscriber
from indexer.trust import Trust
from protocol import Rank, WorkerId, WorkerSpec
from router.plain_text import plain
from router.sibling import SiblingError

logger = logging.getLogger(__name__)

_MAX_AT_ONCE = 4  # dumps of one sibling


class BootstrapOutcome(StrEnum):
    """How one attempt to take a worker over from one sibling ended."""

    LOADED = "loaded"
    UNKNOWN = "unknown"  # the sibling knows no rank of it well enough
    FAILED = "failed"  # no answer, or none that can be loaded
    TIMED_OUT = "timed_out"


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


class Bootstrap:
    """Takes workers over from siblings. ``run`` it once.

    Args:
        siblings: URLs of control ports, asked in this order, each for its share of ``timeout_s``.
        timeout_s: for one worker; then it recovers by itself.

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
        self._clock = clock
        self._learned: asyncio.Queue[WorkerSpec] = asyncio.Queue()
        self._room = {sibling: asyncio.Semaphore(_MAX_AT_ONCE) for sibling in siblings}
        self.outcomes: Counter[BootstrapOutcome] = Counter()

    def begin(self, spec: WorkerSpec) -> None:
        """A worker was learned and subscribed to: nothing is taken from its sockets until it is taken over."""
        if not self._siblings or not spec.sources:
            return
        for source in spec.sources:
            self._heirs.subscriber.pause(source)
        self._learned.put_nowait(spec)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._take_over(await self._learned.get()))

    async def _take_over(self, spec: WorkerSpec) -> None:
        try:
            for sibling in self._siblings:
                outcome = await self._ask(sibling, spec)
                self.outcomes[outcome] += 1
                if outcome is BootstrapOutcome.LOADED:
                    return
        finally:
            for source in spec.sources:
                self._heirs.subscriber.resume(source)

    async def _ask(self, sibling: str, spec: WorkerSpec) -> BootstrapOutcome:
        """One attempt; never longer than its share."""
        try:
            async with asyncio.timeout(self._share_s), self._room[sibling]:
                return await self._load(sibling, spec)
        except TimeoutError:
            logger.warning("sibling %s takes too long to tell of worker %s", sibling, spec.worker)
            return BootstrapOutcome.TIMED_OUT
        except (SiblingError, DumpError) as error:
            reason = plain(str(error))
            logger.warning("sibling %s cannot tell of worker %s: %s", sibling, spec.worker, reason)
            return BootstrapOutcome.FAILED

    async def _load(self, sibling: str, spec: WorkerSpec) -> BootstrapOutcome:
        """Load a dump, a line a turn. The ranks that are whole are taken over however it ends."""
        loading = IndexLoad(self._heirs.index, self._clock(), _Wants(spec))
        try:
            async with aclosing(self._dumps.dump(sibling, spec.worker)) as lines:
                async for line in lines:
                    loading.feed(line)
                    await asyncio.sleep(0)
            loading.finish()
        finally:
            loading.abort()
            for whole in loading.loaded:
                self._begin_stream(whole)
        if not loading.loaded:
            return BootstrapOutcome.UNKNOWN
        count = len(loading.loaded)
        logger.info("took %d ranks of worker %s over from %s", count, spec.worker, sibling)
        return BootstrapOutcome.LOADED

    def _begin_stream(self, line: RankLine) -> None:
        assert line.seq is not None
        rank = Rank(WorkerId(line.worker), line.dp_rank)
        self._heirs.intake.resume(rank, line.seq, line.digests, line.trust, self._clock())


class _Wants:
    """Which ranks of a dump are better than what the worker's own replay would bring."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._worker = spec.worker
        self._own = {source.rank.dp_rank: source for source in spec.sources}
        self._only = spec.sources[0] if len(spec.sources) == 1 else None

    def __call__(self, line: RankLine) -> bool:
        source = self._own.get(line.dp_rank, self._only)
        if line.worker != self._worker or source is None:
            return False
        if not line.digests or line.digests[-1][0] != line.seq:
            return False  # nothing would tell whether the publisher is the same one
        if line.trust is Trust.EXACT:
            return True
        return line.trust is Trust.JOINED and source.replay_endpoint is None
