"""Traces from end to end: ids in the worker's hands, spans at a collector, and collectors that are none."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from types import ModuleType

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from router.config_sources import ConfigError
from router.request_spans import SpanFate
from router.tracing import Tracing
from router.tracing_config import TracingConfig
from router.tracing_start import open_tracing
from tests.router.failing_workers import OK, reset_at_once
from tests.router.front_door import ask, front_door
from tests.router.records import HOSTILE, KeptRecords, hostile, record
from tests.router.stub_worker import Peer, StubRequest, StubWorker, answering, response, stub_worker

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
STATE = "rojo=1,congo=t61"
NOTHING = "http://127.0.0.1:9"


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """OpenTelemetry reads the process's own environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@asynccontextmanager
async def tracing(
    exporter: SpanExporter | None = None,
    environ: Mapping[str, str] | None = None,
    **chosen: object,
) -> AsyncIterator[Tracing]:
    config = TracingConfig.model_validate({"enabled": True, **chosen})
    made = Tracing(config, environ or {}, exporter)
    try:
        yield made
    finally:
        await made.close()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


async def test_the_clients_span_is_the_parent_and_ours_the_workers() -> None:
    exporter = InMemorySpanExporter()
    kept = KeptRecords()
    async with stub_worker(OK) as worker, tracing(exporter) as traces:
        async with front_door(worker.url, observers=[traces, kept]) as door:
            sent = [("traceparent", PARENT), ("tracestate", STATE), ("baggage", "k=v")]
            await ask(door, headers=sent)
            made = await kept.only()
        await traces.close()
    spans = by_name(exporter)
    request, forward = spans["POST /v1/chat/completions"], spans["forward"]
    assert request.parent is not None
    assert request.parent.is_remote
    assert f"{request.parent.span_id:016x}" == SPAN_ID
    (received,) = worker.requests
    assert received.values("traceparent") == [f"00-{TRACE_ID}-{span_id(forward)}-01"]
    assert received.values("tracestate") == [STATE]
    assert received.values("baggage") == ["k=v"]
    for name, span in spans.items():
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == TRACE_ID
        assert span.context.trace_state.to_header() == STATE
        assert span.resource.attributes["service.name"] == "kvroute"
        if name not in (request.name, "first_byte", "match"):
            assert span.parent is not None
            assert f"{span.parent.span_id:016x}" == span_id(request)
    assert made.hex_trace_id == TRACE_ID
    assert forward.kind.name == "CLIENT"
    assert request.attributes is not None
    assert request.attributes["kvroute.worker"] == "w0"
    assert traces.counts[SpanFate.MADE] == traces.counts[SpanFate.EXPORTED] == len(spans)


def told_parent(request: StubRequest) -> tuple[str, str, str]:
    """Trace, span and flags as a worker got them."""
    (value,) = request.values("traceparent")
    _, trace_id, span, flags = value.split("-")
    return trace_id, span, flags


async def test_every_attempt_has_a_span_of_its_own() -> None:
    exporter = InMemorySpanExporter()
    async with (
        stub_worker(reset_at_once) as bad,
        stub_worker(OK) as good,
        tracing(exporter) as traces,
    ):
        async with front_door(bad.url, good.url, observers=[traces]) as door:
            await ask(door)
            await door.settled()
        await traces.close()
    forwards = [span for span in exporter.get_finished_spans() if span.name == "forward"]
    told = {told_parent(one)[1] for one in (bad.requests[0], good.requests[0])}
    assert {span_id(span) for span in forwards} == told
    assert sorted(span.status.status_code.name for span in forwards) == ["ERROR", "UNSET"]
    assert len({told_parent(one)[0] for one in (*bad.requests, *good.requests)}) == 1


async def served(worker: StubWorker, traces: Tracing, *sent: tuple[str, str]) -> StubRequest:
    async with front_door(worker.url, observers=[traces]) as door:
        await ask(door, headers=sent)
        await door.settled()
    return worker.requests[-1]


@pytest.mark.parametrize("ratio", [None, 1.0, 0.0])
@pytest.mark.parametrize("flags", ["00", "01"])
async def test_whether_a_clients_trace_is_recorded_is_the_clients_to_say(
    ratio: float | None, flags: str
) -> None:
    exporter = InMemorySpanExporter()
    async with stub_worker(OK) as worker, tracing(exporter, sample_ratio=ratio) as traces:
        received = await served(worker, traces, ("traceparent", PARENT[:-2] + flags))
        await traces.close()
    assert bool(exporter.get_finished_spans()) is (flags == "01")
    trace_id, span, told = told_parent(received)
    assert (trace_id, told) == (TRACE_ID, flags)
    assert (span == SPAN_ID) is (flags == "00"), "nothing here is recorded that could be a parent"


@pytest.mark.parametrize(
    ("chosen", "environ", "is_recorded"),
    [
        ({}, {}, True),
        ({"sample_ratio": 0.0}, {}, False),
        ({}, {"OTEL_TRACES_SAMPLER": "always_off"}, False),
        ({}, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, False),
        ({"sample_ratio": 1.0}, {"OTEL_TRACES_SAMPLER": "always_off"}, True),
    ],
)
async def test_whether_a_trace_that_begins_here_is_recorded(
    chosen: dict[str, object], environ: dict[str, str], is_recorded: bool
) -> None:
    exporter = InMemorySpanExporter()
    with variables(**environ):
        async with stub_worker(OK) as worker, tracing(exporter, environ, **chosen) as traces:
            received = await served(
                worker, traces, ("traceparent", "nonsense"), ("tracestate", "a=1")
            )
            await traces.close()
    trace_id, _, flags = told_parent(received)
    assert flags == ("01" if is_recorded else "00")
    assert received.values("tracestate") == []
    spans = exporter.get_finished_spans()
    assert bool(spans) is is_recorded
    for span in spans:
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == trace_id


@pytest.mark.parametrize(
    ("chosen", "environ", "name"),
    [
        ({}, {}, "kvroute"),
        ({}, {"OTEL_SERVICE_NAME": "front"}, "front"),
        ({}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=door,a=b"}, "door"),
        ({"service_name": "mine"}, {"OTEL_SERVICE_NAME": "front"}, "mine"),
    ],
)
async def test_the_name_of_the_service(
    chosen: dict[str, object], environ: dict[str, str], name: str
) -> None:
    exporter = InMemorySpanExporter()
    with variables(**environ):
        async with tracing(exporter, environ, **chosen) as traces:
            made = record()
            traces.begun(made, ())
            traces.ended(made)
            await traces.close()
    assert {one.resource.attributes["service.name"] for one in exporter.get_finished_spans()} == {
        name
    }


async def test_refusals_are_traced() -> None:
    exporter = InMemorySpanExporter()
    async with tracing(exporter) as traces:
        async with front_door(observers=[traces]) as door:
            await ask(door, headers=[("traceparent", PARENT)])
        await traces.close()
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["error.type"] == "no_worker"
    assert span.attributes["http.response.status_code"] == 503
    assert span.status.status_code.name == "ERROR"


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_can_be_exported(text: str, caplog: pytest.LogCaptureFixture) -> None:
    exporter = InMemorySpanExporter()
    async with tracing(exporter) as traces:
        made = hostile(text)
        traces.begun(made, [(b"traceparent", PARENT.encode()), (b"tracestate", b"\xff=\x1b")])
        traces.ended(made)
        await traces.close()
    assert len(encode_spans(exporter.get_finished_spans()).SerializeToString()) < 20_000
    assert not caplog.records


# A collector


@pytest.mark.parametrize("by_variable", [True, False])
async def test_spans_reach_a_collector(by_variable: bool) -> None:
    async with stub_worker(answering(response(b"", headers=()))) as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url} if by_variable else {}
        chosen = {} if by_variable else {"endpoint": collector.url}
        with variables(**environ):
            async with stub_worker(OK) as worker, tracing(None, environ, **chosen) as traces:
                await served(worker, traces)
        sent = ExportTraceServiceRequest()
        sent.ParseFromString(collector.requests[0].body)
    assert collector.requests[0].target == "/v1/traces"
    names = [
        span.name
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(names) == ["POST /v1/chat/completions", "first_byte", "forward", "plan"]
    assert traces.counts[SpanFate.EXPORTED] == 4


async def refuse(peer: Peer) -> None:
    await peer.send(response(b"no", status=400))


async def hang(peer: Peer) -> None:
    await peer.gone()


async def test_a_collector_that_refuses_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        stub_worker(refuse) as collector,
        stub_worker(OK) as worker,
        tracing(endpoint=f"{collector.url}/v1/traces") as traces,
    ):
        for _ in range(3):
            await served(worker, traces)
    assert traces.counts == {SpanFate.MADE: 12, SpanFate.FAILED: 12}


async def timed_out(traces: Tracing) -> None:
    async with asyncio.timeout(2):
        await traces.close(0.1)


async def test_a_collector_that_is_not_there_costs_no_request_and_ends_with_the_router(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = TracingConfig(enabled=True, endpoint=NOTHING)
    with variables(OTEL_BSP_SCHEDULE_DELAY="1"):
        traces = Tracing(config, {})
    async with stub_worker(OK) as worker:
        for _ in range(20):
            await served(worker, traces)
    await timed_out(traces)
    assert traces.counts[SpanFate.MADE] == 80
    assert traces.counts[SpanFate.EXPORTED] == 0
    exporting = [one for one in caplog.records if one.name.startswith("opentelemetry.exporter")]
    assert len(exporting) <= 1


async def test_a_collector_that_hangs_holds_a_bounded_number_of_spans() -> None:
    with variables(OTEL_BSP_MAX_QUEUE_SIZE="8", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="4"):
        async with stub_worker(hang) as collector:
            traces = Tracing(TracingConfig(enabled=True, endpoint=collector.url), {})
            made = record()
            traces.begun(made, ())
            for _ in range(100):
                traces.ended(made)
            await timed_out(traces)
    assert traces.counts[SpanFate.MADE] == 600
    assert traces.counts[SpanFate.EXPORTED] == 0


# Begin and end


async def test_nothing_is_traced_where_nobody_asks_for_it() -> None:
    async with open_tracing(TracingConfig(), {}) as none:
        assert none is None
    off = {"OTEL_SDK_DISABLED": "TRUE"}
    async with open_tracing(TracingConfig(enabled=True), off) as none:
        assert none is None
    async with open_tracing(TracingConfig(enabled=True), {}) as some:
        assert some is not None


def without(missing: str) -> ModuleType:
    raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)


async def test_without_the_extra_the_start_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"tracing\.enabled: .*pip install 'kvroute\[otel\]'"):
        async with open_tracing(
            TracingConfig(enabled=True), {}, lambda _: without("opentelemetry.sdk")
        ):
            pass
    with pytest.raises(ModuleNotFoundError):
        async with open_tracing(TracingConfig(enabled=True), {}, lambda _: without("router.x")):
            pass


async def test_bounds_that_make_no_sense_are_told_at_the_start() -> None:
    with (
        variables(OTEL_BSP_MAX_QUEUE_SIZE="1"),
        pytest.raises(ConfigError, match="max_export_batch_size"),
    ):
        async with open_tracing(TracingConfig(enabled=True), {}, import_module):
            pass


@pytest.mark.parametrize(
    "bad", [{"endpoint": "collector:4318"}, {"sample_ratio": 1.5}, {"service_name": ""}]
)
def test_bad_configuration_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        TracingConfig.model_validate(bad)
