"""Prometheus metrics: plain counters of all parts, read when somebody asks and at no other time."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.subscriber import EventSubscriber
from prompt import TokenMemo
from router.body_room import BodyRoom
from router.breaker import BreakerState
from router.client_keys import ClientKeys
from router.connections import ConnectionGuard
from router.control_guard import Intruder
from router.counters import Bound, DataCounters
from router.engine_counters import engine_reuse
from router.index_metrics import index_readings
from router.kept_metrics import kept_metrics
from router.key_file import KeyFile
from router.key_metrics import key_metrics
from router.made_ids import MadeIds
from router.metric_families import Reading, by_one, counter, gauge, gauges
from router.pool_sources import PoolSources
from router.port_metrics import port_metrics, reach_metric
from router.queue_metrics import queue_metrics
from router.reach import Reach
from router.registry import Registry
from router.relay_metrics import relay_metrics
from router.retry_budget import RetryBudget
from router.server_certificate import ServerCertificate
from router.shelf import PromptShelf
from router.stream_metrics import socket_metrics, stream_metrics
from router.ticker import Ticker
from router.tokenizer_findings import tokenizer_findings
from router.upstream import Upstream
from router.waiting_queue import WaitingQueue
from router.watching import Watching
from router.worker_record import WorkerState
from scoring import Planner


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Whose counters are exported.

    Attributes:
        clock: monotonic seconds, as all parts count them.
        wall_clock: seconds since the epoch, as engines stamp their batches.
    """

    data: DataCounters
    planner: Planner
    index: FleetIndex
    intake: Intake
    subscriber: EventSubscriber
    registry: Registry
    ticker: Ticker
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    connections: Mapping[str, ConnectionGuard] = field(default_factory=dict)
    pools: PoolSources | None = None
    memo: TokenMemo | None = None
    made: MadeIds | None = None
    shelf: PromptShelf | None = None
    keys: ClientKeys | None = None
    key_file: KeyFile | None = None
    certificates: Mapping[str, ServerCertificate] = field(default_factory=dict)
    reach: Reach | None = None
    upstream: Upstream | None = None
    retries: RetryBudget = field(default_factory=RetryBudget)
    queue: WaitingQueue = field(default_factory=WaitingQueue)
    watching: Watching = field(default_factory=Watching)
    bodies: BodyRoom = field(default_factory=lambda: BodyRoom(0))
    intruders: Counter[Intruder] = field(default_factory=Counter)


class RouterCollector(Collector):
    """All metrics of one router. Label values are of closed sets, or name workers and their ranks."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Read every counter once."""
        for reading in self.readings():
            yield from reading()

    def readings(self) -> Iterator[Reading]:
        """Read every counter once, part by part; each step takes O(ranks).

        What is read in a step stays as it is, so that metrics can be made of it later, on any thread.
        """
        sources, now = self._sources, self._sources.clock()
        keys = key_metrics(sources.keys, sources.key_file)
        watching = sources.watching.metrics()
        to_workers = relay_metrics(sources.upstream, sources.retries, sources.data.in_flight, now)
        kept = kept_metrics(sources.made)
        small = [
            *self._data(),
            *to_workers,
            *self._planner(),
            *self._memo(),
            *keys,
            *kept,
            *watching,
        ]
        yield lambda: small
        workers = list(self._workers())
        yield lambda: workers
        heard = () if sources.pools is None else sources.pools.states()
        shelf = sources.shelf
        others = [] if shelf is None else list(tokenizer_findings(shelf.differences()))
        yield from index_readings(sources.index, now, heard, others)
        statuses, wall_offset_s = sources.intake.statuses(), sources.wall_clock() - now
        yield lambda: stream_metrics(statuses, now, wall_offset_s)
        traffic = sources.subscriber.traffic()
        yield lambda: socket_metrics(traffic)

    def _memo(self) -> Iterator[Metric]:
        if self._sources.memo is None:
            return
        counts = self._sources.memo.counts()
        yield gauge(
            "prompt_memo_bytes", "Long chats and their tokens that are kept.", counts.size_bytes
        )
        lookups = {"hit": counts.num_hits, "miss": counts.num_misses}
        text = "Long chats that were looked for among those that are kept."
        yield counter("prompt_memo_lookups", text, ("result",), by_one(lookups))
        text = "Kept chats that made room for others."
        yield counter("prompt_memo_evicted", text, (), [((), counts.num_evicted)])

    def _data(self) -> Iterator[Metric]:
        data = self._sources.data
        told = "Requests by the status that was sent; what broke off afterwards is in kvroute_broken_answers_total, too."
        yield counter("requests", told, ("api", "status"), data.requests.items())
        yield gauge("requests_in_flight", "Requests being served.", data.in_flight)
        yield counter(
            "retries", "Attempts that another one followed.", ("reason",), by_one(data.retries)
        )
        yield counter(
            "unrouted", "Requests placed by load alone.", ("reason",), by_one(data.unrouted)
        )
        text = "Attempts that were not repeated, for the fleet's budget was spent."
        yield counter("retries_withheld", text, ("reason",), by_one(data.retries_withheld))
        text = "Requests refused for want of room, by the bound that they met: 429."
        met = {bound.value: data.overloaded[bound] for bound in Bound}
        yield counter("overloaded", text, ("bound",), by_one(met))
        text = "Of request bodies above 64 KiB that are held until their answers end."
        yield gauge("held_body_bytes", text, self._sources.bodies.held_bytes)
        asked = {result: data.asked[result] for result in ("kept", "asked", "failed")}
        text = "Prompts that an engine was to tokenize: kept from before, asked for, and failed of these."
        yield counter("asked_prompts", text, ("result",), by_one(asked))
        for name, text, value in (
            (
                "cut_prompts",
                "Requests placed by what comes before their first image.",
                data.cut_prompts,
            ),
            (
                "approximate_prompts",
                "Requests placed by what the router remembers of alike texts, for want of tokens.",
                data.approximate_prompts,
            ),
            ("body_too_large", "Requests refused for their size: 413.", data.body_too_large),
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
            yield counter(name, text, (), [((), value)])
        yield from port_metrics(
            self._sources.connections, self._sources.certificates, self._sources.intruders
        )
        yield reach_metric(self._sources.reach)
        ttft = HistogramMetricFamily("kvroute_ttft_seconds", "Request to first byte of an answer.")
        ttft.add_metric((), data.ttft_s.cumulative(), data.ttft_s.total)
        yield ttft
        text = "Time between two tokens of a stream: first content to end, by the tokens that the engine reported."
        pace = HistogramMetricFamily("kvroute_time_per_output_token_seconds", text)
        pace.add_metric((), data.token_s.cumulative(), data.token_s.total)
        yield pace

    def _planner(self) -> Iterator[Metric]:
        counters = self._sources.planner.counters()
        plans = [((str(policy), str(why)), n) for (policy, why), n in counters.plans.items()]
        yield counter("plans", "Decisions that chose a rank.", ("policy", "reason"), plans)
        yield counter(
            "plans_without_candidate",
            "Decisions without a rank.",
            (),
            [((), counters.no_candidate)],
        )
        yield counter("attempts", "Attempts ended.", ("outcome",), by_one(counters.outcomes))
        yield gauge("leases_open", "Attempts booked on a rank.", counters.open_plans)
        yield counter(
            "index_failures",
            "Calls of the index that failed.",
            ("verb",),
            by_one(counters.index_failures),
        )
        failures = by_one(self._sources.ticker.failures)
        outcomes = self._sources.registry.bootstrap_outcomes
        text = "Attempts to take a worker or storage pool over from a sibling."
        yield counter("bootstraps", text, ("outcome",), by_one(outcomes))
        yield counter("tick_failures", "Housekeeping that failed.", ("part",), failures)
        reuse = counters.reuse
        blocks = [
            (("matched",), reuse.matched_blocks),
            (("reported",), reuse.reported_blocks),
        ]
        yield counter(
            "reused_blocks",
            "Blocks of prompts in cache, as matched and as reported.",
            ("by",),
            blocks,
        )
        text = (
            "The same, each block by what a hit on its tier saves: 1 on GPU, by default 0.8 on host and 0.4 on storage. "
            "Reported ones are taken to lie where they were matched, beyond that on GPU."
        )
        weights = {"matched": reuse.matched_weight, "reported": reuse.reported_weight}
        by_source = [((by,), weight) for by, weight in weights.items()]
        yield counter("reused_blocks_weighted", text, ("by",), by_source)

    def _workers(self) -> Iterator[Metric]:
        records = self._sources.registry.records()
        states = dict.fromkeys(WorkerState, 0)
        for record in records:
            states[record.state] += 1
        yield gauges("workers", "Workers by state.", ("state",), by_one(states))
        opened = [((record.worker,), record.breaker.num_opened) for record in records]
        yield counter("breaker_opened", "Times a breaker opened.", ("worker",), opened)
        stands = [
            ((record.worker, state.value), float(record.breaker.state is state))
            for record in records
            for state in BreakerState
        ]
        text = "1 for the state that a breaker is in."
        yield gauges("breaker_state", text, ("worker", "state"), stands)
        trials = [((record.worker,), record.breaker.num_trials) for record in records]
        meaning = "Requests let through to a worker whose breaker is open, for nobody else could take them."
        yield counter("breaker_trials", meaning, ("worker",), trials)
        faults = [
            ((record.worker,), record.discovered.num_faults)
            for record in records
            if record.discovered is not None
        ]
        yield gauges(
            "worker_faults", "What a worker says and could not be taken.", ("worker",), faults
        )
        yield from engine_reuse(records)
        loads = self._sources.planner.rank_loads(self._sources.clock())
        yield from queue_metrics(self._sources.queue, loads)
        in_flight = [((one.rank.worker, str(one.rank.dp_rank)), one.in_flight) for one in loads]
        yield gauges(
            "rank_in_flight",
            "Requests booked on a rank, those that wait for no room included.",
            ("worker", "dp_rank"),
            in_flight,
        )


async def scrape(sources: MetricSources, executor: Executor) -> bytes:
    """All metrics in Prometheus' text format, without keeping the event loop.

    The numbers are read on the loop, which goes on between the parts; the text, half a second's work where
    there are 1,000 ranks, is made in the executor.
    """
    readings: list[Reading] = []
    for reading in RouterCollector(sources).readings():
        readings.append(reading)
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, _text, _Read(readings))


def exposition(sources: MetricSources) -> bytes:
    """The same in one go."""
    return _text(RouterCollector(sources))


class _Read(Collector):
    """Numbers that were read before."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        """Make metrics of them."""
        for reading in self._readings:
            yield from reading()


def _text(collector: Collector) -> bytes:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)
