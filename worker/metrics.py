"""``/metrics``: gauges and counters under the names that the worker's engine gives them, and our own.

The engine keeps plain integers; they are exported when scraped. Labels: model name and rank.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.config import WorkerConfig
from worker.flavour import Flavour
from worker.rank import RankRunner
from worker.ranks import RankSet
from worker.sleep import Sleep, SleepState
from worker.truth import counters, storage_counters

Read = Callable[[RankRunner], float]


@dataclass(frozen=True, slots=True)
class _Names:
    """What one engine exports: name, help and value of each family, and the label of a rank."""

    rank_label: str
    gauges: tuple[tuple[str, str, Read], ...]
    counters: tuple[tuple[str, str, Read], ...]


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
_FINISHED: Read = attrgetter("engine.counters.finished")

_SGLANG = _Names(
    "dp_rank",
    gauges=(
        ("sglang:num_running_reqs", "Requests with device slots.", _RUNNING),
        ("sglang:num_queue_reqs", "Requests that wait.", _WAITING),
        ("sglang:token_usage", "Share of the device pool in use, cached tokens included.", _USAGE),
        ("sglang:cache_hit_rate", "Cached share of all prompt tokens.", _hit_rate),
    ),
    counters=(
        ("sglang:prompt_tokens", "Prompt tokens of admitted requests.", _PROMPT),
        ("sglang:generation_tokens", "Tokens generated.", _GENERATED),
        ("sglang:cached_tokens", "Prompt tokens that were cached.", _cached),
        ("sglang:num_retractions", "Requests that lost their slots, each time.", _PREEMPTED),
    ),
)
_VLLM = _Names(
    "engine",
    gauges=(
        ("vllm:num_requests_running", "Requests with device slots.", _RUNNING),
        ("vllm:num_requests_waiting", "Requests that wait.", _WAITING),
        ("vllm:kv_cache_usage_perc", "Share of the blocks that requests use.", _USAGE),
    ),
    counters=(
        ("vllm:prompt_tokens", "Prompt tokens of admitted requests.", _PROMPT),
        ("vllm:generation_tokens", "Tokens generated.", _GENERATED),
        ("vllm:prefix_cache_queries", "Prompt tokens looked up.", _PROMPT),
        ("vllm:prefix_cache_hits", "Prompt tokens found.", _cached),
        ("vllm:prompt_tokens_cached", "Prompt tokens that were cached.", _cached),
        ("vllm:num_preemptions", "Requests that lost their slots, each time.", _PREEMPTED),
        ("vllm:request_success", "Requests that ended with all their tokens.", _FINISHED),
    ),
)
_NAMES = {Flavour.SGLANG: _SGLANG, Flavour.VLLM: _VLLM}
_SOURCES = ("device", "host")


class WorkerCollector(Collector):
    """Reads every rank at scrape time."""

    def __init__(self, config: WorkerConfig, ranks: RankSet, sleep: Sleep) -> None:
        self._config = config
        self._model_name = config.model_name
        self._names = _NAMES[config.engine]
        self._ranks = ranks
        self._sleep = sleep

    def collect(self) -> Iterator[Metric]:
        """One family a row of the engine's table, what vLLM has beside, and two of all our counters."""
        labels = ["model_name", self._names.rank_label]
        for name, help_text, read in self._names.gauges:
            yield self._filled(GaugeMetricFamily(name, help_text, labels=labels), read)
        for name, help_text, read in self._names.counters:
            yield self._filled(CounterMetricFamily(name, help_text, labels=labels), read)
        if self._config.engine is Flavour.VLLM:
            yield self._by_source()
            yield self._sleep_state()
            yield self._cache_config()
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

    def _sleep_state(self) -> Metric:
        family = GaugeMetricFamily(
            "vllm:engine_sleep_state",
            "1 for the state that the engine is in.",
            labels=["model_name", "engine", "sleep_state"],
        )
        for runner in self._ranks:
            for state in SleepState:
                labels = [self._model_name, str(runner.dp_rank), state]
                family.add_metric(labels, float(state is self._sleep.state))
        return family

    def _cache_config(self) -> Metric:
        config = self._config
        told = {
            "block_size": str(config.page_size),
            "enable_prefix_caching": "True",
            "num_gpu_blocks": str(config.gpu_tokens // config.page_size),
            "prefix_caching_hash_algo": "sha256",
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info",
            "How the cache is configured; always 1.",
            labels=[*told, "engine"],
        )
        for runner in self._ranks:
            family.add_metric([*told.values(), str(runner.dp_rank)], 1)
        return family

    def _own(self) -> Metric:
        family = CounterMetricFamily(
            "kvroute_worker_events",
            "Counters of engine, cache, storage and publisher, by name.",
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


def exposition(collector: WorkerCollector) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
