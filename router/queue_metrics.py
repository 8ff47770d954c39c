"""Metrics of the queue before full workers: who waits, how waits end, and who may not wait."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from router.metric_families import by_one, counter, gauge, gauges
from router.waiting_queue import QueueEnd, QueueRefusal, WaitingQueue
from scoring import RankLoad


def queue_metrics(queue: WaitingQueue, loads: Iterable[RankLoad]) -> Iterator[Metric]:
    """Of the queue, and of the bounds that make requests wait."""
    yield gauge("queue_depth", "Requests that wait for room on a rank.", len(queue))
    ended = {how.value: queue.ended[how] for how in QueueEnd}
    text = "Requests that waited for room, by how that ended."
    yield counter("queue_waits", text, ("outcome",), by_one(ended))
    refused = {why.value: queue.refused[why] for why in QueueRefusal}
    text = "Requests that found no room and did not wait: 429."
    yield counter("queue_refused", text, ("reason",), by_one(refused))
    waits = HistogramMetricFamily("kvroute_queue_wait_seconds", "Waits that ended on a rank.")
    waits.add_metric((), queue.wait_s.cumulative(), queue.wait_s.total)
    yield waits
    bounds = [
        ((one.rank.worker, str(one.rank.dp_rank)), one.max_in_flight)
        for one in loads
        if one.max_in_flight is not None
    ]
    text = "Requests that a rank is given at once, where that is bounded."
    yield gauges("rank_max_in_flight", text, ("worker", "dp_rank"), bounds)
