"""Who is told of every request: the access log and traces, as they are configured; else nobody."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from router.access_log import AccessLog, open_access_log
from router.access_log_config import AccessLogConfig
from router.hang_up import HangUp
from router.line_buffer import LineFate
from router.metric_families import by_one, counter
from router.observed_app import Observer
from router.request_spans import SpanFate
from router.tracing_config import TracingConfig
from router.tracing_start import open_tracing

if TYPE_CHECKING:
    from router.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Watching:
    """None where it is not configured."""

    access_log: AccessLog | None = None
    tracing: "Tracing | None" = None

    @property
    def observers(self) -> Sequence[Observer]:
        """Traces first: what they settle is logged."""
        return [one for one in (self.tracing, self.access_log) if one is not None]

    def metrics(self) -> Iterator[Metric]:
        """Families without samples where there is nothing to count."""
        log, tracing = self.access_log, self.tracing
        lines = {} if log is None else {fate.value: log.fates[fate] for fate in LineFate}
        text = "Lines of the access log, by what became of them."
        yield counter("access_log_lines", text, ("fate",), by_one(lines))
        spans = {} if tracing is None else {fate.value: tracing.counts[fate] for fate in SpanFate}
        text = (
            "Spans that were made, and of these those that the collector took or refused; "
            "the rest waits, or was dropped at the bound."
        )
        yield counter("trace_spans", text, ("fate",), by_one(spans))


@asynccontextmanager
async def open_watching(
    log: AccessLogConfig, tracing: TracingConfig, hang_up: HangUp
) -> AsyncIterator[Watching]:
    """What is configured, until the context ends.

    Raises:
        ConfigError: it cannot be had.
    """
    async with open_access_log(log, hang_up) as access_log, open_tracing(tracing) as traces:
        yield Watching(access_log, traces)
