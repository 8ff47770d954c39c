"""What engines count themselves of the reuse of their prompts, beside what the router was told of it.

An engine counts every request that it serves, whoever sent it, since it started; so its sums differ from the
router's where there are other clients. They are as old as the last time the worker was asked what it is.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from router.metric_families import counter
from router.worker_record import WorkerRecord


def engine_reuse(records: Iterable[WorkerRecord]) -> Iterator[Metric]:
    """Blocks of all prompts of a rank, and of these the cached ones, at its worker's own block size."""
    prompts: list[tuple[tuple[str, ...], float]] = []
    cached: list[tuple[tuple[str, ...], float]] = []
    for record in records:
        found = record.discovered
        if found is None or not found.spec.block_size:
            continue
        for dp_rank, reuse in found.reuse.items():
            name = record.worker, str(dp_rank)
            prompts.append((name, reuse.prompt_tokens // found.spec.block_size))
            cached.append((name, reuse.cached_tokens // found.spec.block_size))
    labels = ("worker", "dp_rank")
    yield counter(
        "engine_prompt_blocks", "Blocks of prompts, as the engine counts.", labels, prompts
    )
    yield counter("engine_cached_blocks", "Of these, those found in its cache.", labels, cached)
