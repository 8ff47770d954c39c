"""Traces by OpenTelemetry: the trace of each request at its beginning, its spans at its end.

    request begins ─▶ sampler ─▶ … ─▶ request ends ─▶ spans, with the times of the record ─▶ batch processor ─▶ OTLP

On the way nothing is made but ids. Spans that wait for the collector are bounded (``OTEL_BSP_MAX_QUEUE_SIZE``, 2,048):
at the bound the oldest are dropped, and no request waits. The processor exports on a thread of its own; a collector that cannot
be reached costs what is in that queue, and a line in the log now and then.

This module needs the extra ``otel``; it is imported where traces are configured, and nowhere else.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBasedTraceIdRatio, Sampler
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from router.headers import RawHeader
from router.request_record import RequestRecord
from router.request_spans import Kind, SpanFate, SpanValues, request_span
from router.trace_context import (
    Trace,
    TraceContext,
    TraceParent,
    is_sound,
    new_span_id,
    new_trace_id,
    read_context,
)
from router.tracing_config import TracingConfig

logger = logging.getLogger(__name__)

DEFAULT_NAME = "kvroute"
TRACES_PATH = "/v1/traces"
CLOSE_S = 3.0
"""That the last spans may take when the router stops."""
_TOLD_EVERY_S = 60.0
_KINDS = {
    Kind.SERVER: SpanKind.SERVER,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.INTERNAL: SpanKind.INTERNAL,
}


class Tracing:
    """An observer of requests.

    Args:
        config: what it says goes before ``environ``.
        exporter: where spans go; by default to the collector that both name.

    Raises:
        ValueError: the environment bounds the queue by nonsense.

    Attributes:
        counts: of spans, by fate. Those that were made and have no other wait, or were dropped at the bound.
    """

    def __init__(
        self,
        config: TracingConfig,
        environ: Mapping[str, str],
        exporter: SpanExporter | None = None,
    ) -> None:
        self.counts: Counter[SpanFate] = Counter()
        if exporter is None:
            logging.getLogger(OTLPSpanExporter.__module__).addFilter(_Seldom())
            exporter = OTLPSpanExporter(_endpoint(config.endpoint))
        self._exporter = CountedExporter(exporter, self.counts)
        self._ids = GivenIds()
        self._provider = TracerProvider(
            _sampler(config.sample_ratio),
            _resource(config.service_name, environ),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(DEFAULT_NAME)

    def begun(self, record: RequestRecord, headers: Sequence[RawHeader]) -> None:
        """Take the client's trace up, or begin one, and settle whether it is recorded."""
        context = read_context(headers)
        parent = context.parent
        trace_id = new_trace_id() if parent is None else parent.trace_id
        within = None if parent is None else set_span_in_context(_remote(parent, context))
        sampled = self._provider.sampler.should_sample(within, trace_id, record.method)
        is_sampled = sampled.decision is Decision.RECORD_AND_SAMPLE
        record.trace_id = trace_id
        record.trace = Trace(trace_id, new_span_id(), is_sampled, context)

    def ended(self, record: RequestRecord) -> None:
        """Make its spans."""
        trace = record.trace
        if trace is None or not trace.is_sampled:
            return
        parent = trace.context.parent
        self._ids.trace_id = trace.trace_id
        self._make(request_span(record), None if parent is None else _remote(parent, trace.context))

    def _make(self, values: SpanValues, parent: NonRecordingSpan | None) -> None:
        self._ids.span_id = values.span_id or new_span_id()
        span = self._tracer.start_span(
            values.name,
            None if parent is None else set_span_in_context(parent),
            _KINDS[values.kind],
            values.attributes,
            start_time=values.start_ns,
        )
        if values.error is not None:
            span.set_status(Status(StatusCode.ERROR, values.error))
        self.counts[SpanFate.MADE] += 1
        context = span.get_span_context()
        for child in values.children:
            self._make(child, NonRecordingSpan(context))
        span.end(values.end_ns)

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Export what waits, within the time. What is left then is lost."""
        loop = asyncio.get_running_loop()
        is_done = asyncio.Event()
        thread = threading.Thread(target=self._shut_down, args=(loop, is_done), daemon=True)
        thread.start()
        try:
            async with asyncio.timeout(timeout_s):
                await is_done.wait()
        except TimeoutError:
            counts = self.counts
            lost = counts[SpanFate.MADE] - counts[SpanFate.EXPORTED] - counts[SpanFate.FAILED]
            logger.warning("the collector of traces takes no spans: %d were never sent", lost)
            self._exporter.shutdown()

    def _shut_down(self, loop: asyncio.AbstractEventLoop, is_done: asyncio.Event) -> None:
        self._provider.shutdown()
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(is_done.set)


class GivenIds(IdGenerator):
    """Ids that were told to others before their spans are made. Used on one thread."""

    def __init__(self) -> None:
        self.trace_id = 1
        self.span_id = 1

    def generate_trace_id(self) -> int:
        """The one that is set."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Likewise."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """Traces that begin here have random ids, others are the client's: nothing is said of them."""
        return False


class CountedExporter(SpanExporter):
    """Counts what another exporter makes of spans."""

    def __init__(self, exporter: SpanExporter, counts: Counter[SpanFate]) -> None:
        self._exporter = exporter
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Pass them on."""
        result = self._exporter.export(spans)
        is_taken = result is SpanExportResult.SUCCESS
        fate = SpanFate.EXPORTED if is_taken else SpanFate.FAILED
        self._counts[fate] += len(spans)
        return result

    def shutdown(self) -> None:
        """Pass it on."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Pass it on."""
        return self._exporter.force_flush(timeout_millis)


class _Seldom(logging.Filter):
    """Lets a line pass once a minute: each batch that cannot be exported is told several times."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Is it time for one?"""
        if self._told_at is not None and record.created - self._told_at < _TOLD_EVERY_S:
            return False
        self._told_at = record.created
        return True


def _endpoint(base: str | None) -> str | None:
    """Where spans go; None for what the environment says."""
    if base is None:
        return None
    return base.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH


def _resource(service_name: str | None, environ: Mapping[str, str]) -> Resource:
    """Who speaks: as configured, else as the environment says, else ``kvroute``."""
    attributes = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if service_name is None and ("OTEL_SERVICE_NAME" in environ or SERVICE_NAME in attributes):
        return Resource.create()
    return Resource.create({SERVICE_NAME: service_name or DEFAULT_NAME})


def _sampler(ratio: float | None) -> Sampler | None:
    """As configured; None for what the environment says."""
    return None if ratio is None else ParentBasedTraceIdRatio(ratio)


def _remote(parent: TraceParent, context: TraceContext) -> NonRecordingSpan:
    """The client's span."""
    state = context.state if is_sound(context.state) else b""  # libraries would log what is not
    return NonRecordingSpan(
        SpanContext(
            parent.trace_id,
            parent.span_id,
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT),
            trace_state=TraceState.from_header([state.decode("latin-1")]) if state else None,
        )
    )
