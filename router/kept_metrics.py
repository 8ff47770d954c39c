"""Metrics of what engines keep under ids: how many are known, and why others are not."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from router.made_ids import Lost, MadeIds
from router.metric_families import by_one, counter, gauge


def kept_metrics(made: MadeIds | None) -> Iterator[Metric]:
    """Families of zeros where nothing is remembered."""
    text = "Ids of responses, files and the like whose maker is remembered."
    yield gauge("made_ids", text, 0 if made is None else len(made))
    lost = {why.value: 0 if made is None else made.lost[why] for why in Lost}
    text = "Ids whose maker is not known, or no more."
    yield counter("made_ids_lost", text, ("reason",), by_one(lost))
