"""Metrics of the way to workers: connections that are open, and attempts that may still be repeated."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from router.metric_families import gauge, gauges
from router.retry_budget import RetryBudget
from router.upstream import Upstream


def relay_metrics(
    upstream: Upstream | None, retries: RetryBudget, num_in_flight: int, now: float
) -> Iterator[Metric]:
    """Without connections where there is no way to workers."""
    num_idle = 0 if upstream is None else upstream.num_idle
    num_busy = 0 if upstream is None else upstream.num_open - num_idle
    states = [(("busy",), num_busy), (("idle",), num_idle)]
    yield gauges("worker_connections", "Connections to workers.", ("state",), states)
    left = max(0.0, retries.left(now, num_in_flight))
    yield gauge("retry_budget_left", "Attempts that may be repeated at this moment.", left)
