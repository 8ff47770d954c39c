"""Reads the fleet for the control port: registry, index, planner and streams joined by rank."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from protocol import Rank
from router.pool_findings import pool_findings
from router.pool_sources import HeardPool, PoolSources
from router.pool_views import pool_source_views, pool_views
from router.registry import Registry
from router.shelf import PromptShelf, Rung, Shelved
from router.tokenizer_findings import tokenizer_findings
from router.views import (
    FindingView,
    IndexView,
    RankView,
    StreamView,
    WorkerDebugView,
    finding_view,
    index_view,
    rank_view,
    silent_stream_view,
    stream_view,
    worker_debug_view,
)
from router.worker_record import WorkerRecord
from scoring import Planner


@dataclass(frozen=True, slots=True)
class FleetDebug:
    """Everything at one moment; each call is O(ranks)."""

    registry: Registry
    index: FleetIndex
    intake: Intake
    planner: Planner
    shelf: PromptShelf
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    pools: PoolSources | None = None

    def workers(self) -> list[WorkerDebugView]:
        """Every worker in full."""
        ranks = self._ranks()
        return [
            worker_debug_view(
                record,
                self._shelved(record),
                tuple(ranks[rank] for rank in record.spec.ranks if rank in ranks)
                if record.spec is not None
                else (),
            )
            for record in self.registry.records()
        ]

    def findings(self) -> list[FindingView]:
        """Every gap that is known of."""
        now = self.clock()
        found = [
            *self.index.findings(now),
            *tokenizer_findings(self.shelf.differences()),
            *pool_findings(self._heard_pools(), now),
        ]
        return [finding_view(finding, now) for finding in found]

    def index_totals(self) -> IndexView:
        """The index as a whole."""
        sources = pool_source_views(self._heard_pools(), self.clock())
        return index_view(self.index.stats(), pool_views(self.index.pool_states()), sources)

    def _heard_pools(self) -> Sequence[HeardPool]:
        return () if self.pools is None else self.pools.states()

    def _ranks(self) -> dict[Rank, RankView]:
        now = self.clock()
        loads = {load.rank: load for load in self.planner.rank_loads(now)}
        streams = self._streams(now)
        return {
            state.rank: rank_view(state, loads.get(state.rank), streams.get(state.rank))
            for state in self.index.rank_states(now)
        }

    def _streams(self, now: float) -> dict[Rank, StreamView]:
        sources = {source.rank: source for spec in self.registry.specs() for source in spec.sources}
        streams = {
            rank: silent_stream_view(source, is_connected=self.intake.is_connected(source))
            for rank, source in sources.items()
        }
        wall_offset_s = self.wall_clock() - now
        for status in self.intake.statuses():
            source = sources.get(status.rank)
            streams[status.rank] = stream_view(status, source, now, wall_offset_s)
        return streams

    def _shelved(self, record: WorkerRecord) -> Shelved:
        if record.spec is None:
            return Shelved(Rung.NONE, detail="the worker has not been learned yet")
        return self.shelf.shelved(record.spec.model)
