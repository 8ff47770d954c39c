"""Reference of the router's metrics, read from the exporter."""

from collections.abc import Sequence

from prometheus_client.metrics_core import Metric

from router.metrics import RouterCollector
from scripts.reference.empty_router import empty_router
from scripts.reference.markdown import code, page, prose, table

_INTRO = (
    "`GET /metrics` on the [control port](control-port.md), and on a port of its own where there is a "
    "[`metrics_port`](configuration.md), in Prometheus' text format. Counters are since the start of the router. Label values come from closed sets, or name a worker and its rank."
)


def metrics() -> str:
    """The page."""
    rows = [
        (code(_name(family)), family.type, _labels(family), prose(family.documentation))
        for family in RouterCollector(empty_router()).collect()
    ]
    return page("Metrics", _INTRO, table(("name", "type", "labels", "meaning"), rows))


def _name(family: Metric) -> str:
    """As it is scraped."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> str:
    # A family without samples shows its label names nowhere else.
    names: Sequence[str] = getattr(family, "_labelnames", ())
    return ", ".join(code(name) for name in names)
