"""Prometheus metrics: plain counters of all parts, read when somebody asks and at no other time."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.subscriber import EventSubscriber
from protocol import Tier
from router.connections import ConnectionGuard
from router.counters import DataCounters
from router.registry import Registry
from router.ticker import Ticker
from router.views import TIER_NAMES
from scoring import Planner

_Name = TypeVar("_Name", bound=str)
Labelled = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Whose counters are exported."""

    data: DataCounters
    planner: Planner
    index: FleetIndex
    intake: Intake
    subscriber: EventSubscriber
    registry: Registry
    ticker: Ticker
    clock: Callable[[], float] = time.monotonic
    connections: Mapping[str, ConnectionGuard] = field(default_factory=dict)


class RouterCollector(Collector):
    """All metrics of one router. Label values are of closed sets, or name workers and their ranks."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Read every counter once."""
        yield from self._data()
        yield from self._planner()
        yield from self._workers()
        yield from self._index()
        yield from self._streams()
        yield from self._event_sockets()

    def _data(self) -> Iterator[Metric]:
        data = self._sources.data
        yield _counter("requests", "Requests answered.", ("api", "status"), data.requests.items())
        yield _gauge("requests_in_flight", "Requests being served.", data.in_flight)
        yield _counter(
            "retries", "Attempts that another one followed.", ("reason",), _by_one(data.retries)
        )
        yield _counter(
            "unrouted", "Requests placed by load alone.", ("reason",), _by_one(data.unrouted)
        )
        for name, text, value in (
            ("body_too_large", "Requests refused for their size: 413.", data.body_too_large),
            ("overloaded", "Requests refused for want of room: 429.", data.overloaded),
            (
                "illegible_headers",
                "Requests refused for a header field that is not UTF-8: 400.",
                data.illegible_headers,
            ),
            ("broken_answers", "Answers that broke off after they had begun.", data.broken_streams),
            ("internal_errors", "Requests that failed inside the router.", data.internal_errors),
            (
                "cached_tokens_predicted",
                "Matched tokens of the chosen ranks.",
                data.predicted_cached_tokens,
            ),
            (
                "cached_tokens_reported",
                "Cached tokens as engines reported.",
                data.reported_cached_tokens,
            ),
            (
                "prompt_tokens_reported",
                "Prompt tokens of those reports.",
                data.reported_prompt_tokens,
            ),
        ):
            yield _counter(name, text, (), [((), value)])
        guards = self._sources.connections
        is_open = [((port,), guard.num_open) for port, guard in guards.items()]
        yield _gauges("connections_open", "Connections of clients.", ("port",), is_open)
        ended = [
            ((port, str(why)), count)
            for port, guard in guards.items()
            for why, count in guard.ended.items()
        ]
        yield _counter(
            "connections_ended", "Connections that were given up.", ("port", "reason"), ended
        )
        ttft = HistogramMetricFamily("kvroute_ttft_seconds", "Request to first byte of an answer.")
        ttft.add_metric((), data.ttft_s.cumulative(), data.ttft_s.total)
        yield ttft

    def _planner(self) -> Iterator[Metric]:
        counters = self._sources.planner.counters()
        plans = [((str(policy), str(why)), n) for (policy, why), n in counters.plans.items()]
        yield _counter("plans", "Decisions that chose a rank.", ("policy", "reason"), plans)
        yield _counter(
            "plans_without_candidate",
            "Decisions without a rank.",
            (),
            [((), counters.no_candidate)],
        )
        yield _counter("attempts", "Attempts ended.", ("outcome",), _by_one(counters.outcomes))
        yield _gauge("leases_open", "Attempts booked on a rank.", counters.open_plans)
        yield _counter(
            "index_failures",
            "Calls of the index that failed.",
            ("verb",),
            _by_one(counters.index_failures),
        )
        failures = _by_one(self._sources.ticker.failures)
        yield _counter("tick_failures", "Housekeeping that failed.", ("part",), failures)
        reuse = counters.reuse
        blocks = [
            (("matched",), reuse.matched_blocks),
            (("reported",), reuse.reported_blocks),
        ]
        yield _counter(
            "reused_blocks",
            "Blocks of prompts in cache, as matched and as reported.",
            ("by",),
            blocks,
        )

    def _workers(self) -> Iterator[Metric]:
        records = self._sources.registry.records()
        states: dict[str, int] = {}
        for record in records:
            states[record.state] = states.get(record.state, 0) + 1
        yield _gauges("workers", "Workers by state.", ("state",), _by_one(states))
        opened = [((record.worker,), record.breaker.num_opened) for record in records]
        yield _counter("breaker_opened", "Times a breaker opened.", ("worker",), opened)
        faults = [
            ((record.worker,), record.discovered.num_faults)
            for record in records
            if record.discovered is not None
        ]
        yield _gauges(
            "worker_faults", "What a worker says and could not be taken.", ("worker",), faults
        )
        loads = self._sources.planner.rank_loads(self._sources.clock())
        in_flight = [((one.rank.worker, str(one.rank.dp_rank)), one.in_flight) for one in loads]
        yield _gauges(
            "rank_in_flight", "Requests booked on a rank.", ("worker", "dp_rank"), in_flight
        )

    def _index(self) -> Iterator[Metric]:
        index, now = self._sources.index, self._sources.clock()
        stats = index.stats()
        yield _gauge("index_blocks", "Distinct blocks with a holder.", stats.blocks)
        claims = [((TIER_NAMES[tier],), count) for tier, count in stats.claims.items()]
        yield _gauges("index_claims", "Announced claims of all ranks.", ("tier",), claims)
        yield _gauge("index_observed", "Claims that rest on evidence.", stats.observed)
        yield _gauge("index_predicted", "Blocks dispatched, not yet heard of.", stats.predicted)
        yield _gauge("index_parked", "Blocks whose parent is unknown.", stats.orphans)
        yield _counter(
            "index_skips",
            "Events and blocks that made no claim.",
            ("reason",),
            _by_one(stats.skips),
        )
        yield from self._odd_events(now)
        findings: dict[str, int] = {}
        for finding in index.findings(now):
            findings[finding.kind] = findings.get(finding.kind, 0) + len(finding.ranks)
        yield _gauges("findings", "Ranks with this finding.", ("kind",), _by_one(findings))

    def _odd_events(self, now: float) -> Iterator[Metric]:
        """Stores and removals that changed nothing, by rank and tier."""
        labels = ("worker", "dp_rank", "tier")
        stored: list[tuple[tuple[str, ...], float]] = []
        removed: list[tuple[tuple[str, ...], float]] = []
        for state in self._sources.index.rank_states(now):
            for tier in Tier:
                name = state.rank.worker, str(state.rank.dp_rank), TIER_NAMES[tier]
                stored.append((name, state.duplicates.get(tier, 0)))
                removed.append((name, state.unknown_removals.get(tier, 0)))
        text = "Blocks stored on a tier that held them already."
        yield _counter("duplicate_stores", text, labels, stored)
        text = "Blocks removed from a tier that did not hold them."
        yield _counter("unknown_removals", text, labels, removed)

    def _streams(self) -> Iterator[Metric]:
        statuses = self._sources.intake.statuses()
        labels = ("worker", "dp_rank")
        for name, text in _STREAM_COUNTERS.items():
            values = [
                ((one.rank.worker, str(one.rank.dp_rank)), getattr(one.counters, name))
                for one in statuses
            ]
            yield _counter(f"stream_{name.removeprefix('num_')}", text, labels, values)
        now = self._sources.clock()
        ages = [
            ((one.rank.worker, str(one.rank.dp_rank)), now - one.last_event_at)
            for one in statuses
            if one.last_event_at is not None
        ]
        yield _gauges(
            "stream_last_event_age_seconds", "Seconds since the last event.", labels, ages
        )
        skipped = [
            ((one.rank.worker, str(one.rank.dp_rank), str(reason)), count)
            for one in statuses
            for reason, count in one.counters.skipped.items()
        ]
        yield _counter(
            "stream_skipped", "Events that could not be read.", (*labels, "reason"), skipped
        )

    def _event_sockets(self) -> Iterator[Metric]:
        traffic = self._sources.subscriber.traffic()
        yield _counter(
            "event_sockets",
            "Messages and replies received, sockets and replays that failed, messages of no source.",
            ("kind",),
            _by_one(traffic.overall),
        )
        by_rank = [
            ((rank.worker, str(rank.dp_rank), kind), count)
            for rank, counts in traffic.by_rank.items()
            for kind, count in counts.items()
        ]
        labels = ("worker", "dp_rank", "kind")
        yield _counter(
            "event_source",
            "Connections of a rank's event socket, and what came by it that was dropped.",
            labels,
            by_rank,
        )


_STREAM_COUNTERS = {
    "batches": "Batches applied.",
    "events": "Events in them.",
    "duplicates": "Live batches that were applied before.",
    "gaps": "Jumps of the sequence number.",
    "losses": "Losses that no replay repaired.",
    "lost_batches": "Batches in them.",
    "unreadable": "Batches that could not be decoded.",
    "partly_read": "Batches with an event that could not be read.",
    "clears": "Full clears.",
    "num_resets": "Restarts of the publisher.",
    "replays": "Replays asked for.",
    "replays_failed": "Replays that broke off or never came.",
}


def exposition(sources: MetricSources) -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(RouterCollector(sources))
    return generate_latest(registry)


def _counter(name: str, text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    family = CounterMetricFamily(f"kvroute_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def _gauges(name: str, text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    family = GaugeMetricFamily(f"kvroute_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return _gauges(name, text, (), [((), value)])


def _by_one(counts: Mapping[_Name, int]) -> Labelled:
    return [((str(name),), count) for name, count in counts.items()]
