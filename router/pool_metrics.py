"""Metrics of storage pools; their number is bounded by that of the workers."""

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from indexer.pool_book import PoolState
from router.metric_families import counter, gauges
from router.pool_sources import HeardPool, PoolEar

_POOL = ("pool",)


def pool_metrics(states: Sequence[PoolState]) -> Iterator[Metric]:
    """Every metric of the pools; O(pools)."""
    blocks = [
        ((state.pool.label, source.value), count)
        for state in states
        for source, count in state.blocks.items()
    ]
    text = "Blocks in a storage pool, by what that rests on; the announced ones of each rank count."
    yield gauges("pool_blocks", text, (*_POOL, "source"), blocks)
    ranks = [((state.pool.label,), len(state.ranks)) for state in states]
    yield gauges("pool_ranks", "Ranks that can fetch what a storage pool holds.", _POOL, ranks)
    unnamed = [((state.pool.label,), state.unnamed) for state in states]
    text = "Blocks that a storage pool names by hashes which no rank has published."
    yield gauges("pool_unnamed", text, _POOL, unnamed)
    contradicted = [((state.pool.label,), state.contradicted) for state in states]
    text = (
        "Inferred blocks of a storage pool that were dropped because a report fell short of them."
    )
    yield counter("pool_contradicted_blocks", text, _POOL, contradicted)
    skips = [
        ((state.pool.label, reason.value), count)
        for state in states
        for reason, count in state.skips.items()
    ]
    text = "Events and blocks of a storage pool that made no claim."
    yield counter("pool_skips", text, (*_POOL, "reason"), skips)


def pool_source_metrics(states: Sequence[HeardPool]) -> Iterator[Metric]:
    """How the pools that publish events are heard; O(pools)."""
    used = [((state.name,), float(state.ear is not PoolEar.UNUSED)) for state in states]
    yield gauges("pool_source_used", "Does a worker share the storage pool?", _POOL, used)
    connected = [((state.name,), float(state.ear is PoolEar.CONNECTED)) for state in states]
    text = "Is the event socket of the storage pool connected?"
    yield gauges("pool_source_connected", text, _POOL, connected)
