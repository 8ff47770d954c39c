"""Families of metrics from plain numbers: names get the prefix, counts get their labels."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

_Name = TypeVar("_Name", bound=str)
Labelled: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
Reading: TypeAlias = Callable[[], Iterable[Metric]]
"""Numbers that were read, to be made metrics of once."""


def counter(name: str, text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    """Counts that only grow, one a set of label values."""
    family = CounterMetricFamily(f"kvroute_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def gauges(name: str, text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    """Values as they are now, one a set of label values."""
    family = GaugeMetricFamily(f"kvroute_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def gauge(name: str, text: str, value: float) -> Metric:
    """One value as it is now."""
    return gauges(name, text, (), [((), value)])


def by_one(counts: Mapping[_Name, int]) -> Labelled:
    """Counts by the one label that they have."""
    return [((str(name),), count) for name, count in counts.items()]
