"""``/metrics``: gauges and counters under the names that SGLang and vLLM give them, and our own.

The engine keeps plain integers; they are exported when scraped. Labels: model name and rank.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.rank import RankRunner
from worker.ranks import RankSet
from worker.truth import counters, storage_counters

Read = Callable[[RankRunner], float]


def _cached(runner: RankRunner) -> int:
    read = runner.engine.counters
    return read.cached_device_tokens + read.cached_host_tokens + read.cached_storage_tokens


def _hit_rate(runner: RankRunner) -> float:
    prompt_tokens = runner.engine.counters.prompt_tokens
    return _cached(runner) / prompt_tokens if prompt_tokens else 0.0


_USAGE: Read = attrgetter("engine.cache.usage")
_PREEMPTED: Read = attrgetter("engine.counters.preempted")
_RUNNING: Read = attrgetter("engine.num_running")
_WAITING: Read = attrgetter("engine.num_waiting")
_PROMPT: Read = attrgetter("engine.counters.prompt_tokens")
_GENERATED: Read = attrgetter("engine.counters.generated_tokens")

_GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("sglang:num_running_reqs", "Requests with device slots.", _RUNNING),
    ("sglang:num_queue_reqs", "Requests that wait.", _WAITING),
    ("sglang:token_usage", "Share of the device pool in use, cached tokens included.", _USAGE),
    ("sglang:cache_hit_rate", "Cached share of all prompt tokens.", _hit_rate),
    ("vllm:num_requests_running", "Requests with device slots.", _RUNNING),
    ("vllm:num_requests_waiting", "Requests that wait.", _WAITING),
    (
        "vllm:kv_cache_usage_perc",
        "Share of the device pool in use, cached tokens included.",
        _USAGE,
    ),
)
_COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("sglang:prompt_tokens", "Prompt tokens of admitted requests.", _PROMPT),
    ("sglang:generation_tokens", "Tokens generated.", _GENERATED),
    ("sglang:cached_tokens", "Prompt tokens that were cached.", _cached),
    ("sglang:num_retractions", "Requests that lost their slots, each time.", _PREEMPTED),
    ("vllm:num_preemptions", "Requests that lost their slots, each time.", _PREEMPTED),
    ("vllm:prompt_tokens", "Prompt tokens of admitted requests.", _PROMPT),
    ("vllm:generation_tokens", "Tokens generated.", _GENERATED),
    ("vllm:prefix_cache_queries", "Prompt tokens looked up.", _PROMPT),
    ("vllm:prefix_cache_hits", "Prompt tokens found.", _cached),
)
_SOURCES = ("device", "host", "storage")


class WorkerCollector(Collector):
    """Reads every rank at scrape time."""

    def __init__(self, model_name: str, ranks: RankSet) -> None:
        self._model_name = model_name
        self._ranks = ranks

    def collect(self) -> Iterator[Metric]:
        """One family a row of the tables, one of cached tokens by source, two of all our counters."""
        for name, help_text, read in _GAUGES:
            gauge = GaugeMetricFamily(name, help_text, labels=_labels(name))
            yield self._filled(gauge, read)
        for name, help_text, read in _COUNTERS:
            counter = CounterMetricFamily(name, help_text, labels=_labels(name))
            yield self._filled(counter, read)
        yield self._by_source()
        yield self._own()
        yield self._storage()

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, read: Read
    ) -> GaugeMetricFamily | CounterMetricFamily:
        for runner in self._ranks:
            family.add_metric([self._model_name, str(runner.dp_rank)], read(runner))
        return family

    def _by_source(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:prompt_tokens_cached_by_source",
            "Prompt tokens that were cached, by where they lay.",
            labels=["model_name", "engine", "source"],
        )
        for runner in self._ranks:
            for source in _SOURCES:
                value = getattr(runner.engine.counters, f"cached_{source}_tokens")
                family.add_metric([self._model_name, str(runner.dp_rank), source], value)
        return family

    def _own(self) -> Metric:
        family = CounterMetricFamily(
            "kvroute_worker_events",
            "Counters of engine, tree, storage and publisher, by name.",
            labels=["model_name", "dp_rank", "name"],
        )
        for runner in self._ranks:
            for name, value in counters(runner).items():
                family.add_metric([self._model_name, str(runner.dp_rank), name], value)
        return family

    def _storage(self) -> Metric:
        """No label of a rank: all ranks share the one storage."""
        family = CounterMetricFamily(
            "kvroute_worker_storage_pages",
            "Pages that this worker put into storage, found there, missed or dropped, by name.",
            labels=["model_name", "name"],
        )
        for name, value in (storage_counters(self._ranks) or {}).items():
            family.add_metric([self._model_name, name], value)
        return family


def _labels(name: str) -> list[str]:
    return ["model_name", "engine" if name.startswith("vllm:") else "dp_rank"]


def exposition(collector: WorkerCollector) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
