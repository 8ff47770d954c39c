"""Spans of a request: their tree, their times, and what they say."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from router.access_line import MAX_COUNT
from router.errors import ErrorKind
from router.request_record import RequestRecord
from router.request_spans import Kind, SpanValues, request_span
from router.trace_context import Trace, TraceContext
from router.upstream_faults import Fault
from scoring import Outcome, OutcomeKind
from tests.router.records import record

TRACE = Trace(5, 6, is_sampled=True, context=TraceContext())
START_NS = 1_700_000_000_500_000_000


def walk(span: SpanValues) -> Iterator[SpanValues]:
    yield span
    for child in span.children:
        yield from walk(child)


def named(made: RequestRecord, name: str) -> SpanValues:
    (found,) = [one for one in walk(request_span(made)) if one.name == name]
    return found


def ms(span: SpanValues) -> tuple[int, int]:
    """Start and end, milliseconds after the request's start."""
    return round((span.start_ns - START_NS) / 1e6), round((span.end_ns - START_NS) / 1e6)


def test_the_tree_and_its_times() -> None:
    span = request_span(record(trace=TRACE))
    assert [(one.name, one.kind) for one in walk(span)] == [
        ("POST /v1/chat/completions", Kind.SERVER),
        ("tokenize", Kind.INTERNAL),
        ("queue", Kind.INTERNAL),
        ("plan", Kind.INTERNAL),
        ("forward", Kind.CLIENT),
        ("first_byte", Kind.INTERNAL),
    ]
    times = {one.name: ms(one) for one in walk(span)}
    assert times == {
        "POST /v1/chat/completions": (0, 100),
        "tokenize": (10, 10),
        "queue": (10, 11),
        "plan": (11, 12),
        "forward": (13, 99),
        "first_byte": (13, 39),
    }
    assert span.span_id == 6
    assert named(record(), "forward").span_id == 0xABC


def test_children_lie_within_their_parents() -> None:
    for made in (record(), record(asked_at=50.0)):
        for span in walk(request_span(made)):
            assert span.start_ns <= span.end_ns
            for child in span.children:
                assert span.start_ns <= child.start_ns <= child.end_ns <= span.end_ns


def test_what_the_request_says() -> None:
    assert request_span(record()).attributes == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "http.request.body.size": 1000,
        "http.response.body.size": 2000,
        "network.protocol.version": "1.1",
        "client.address": "10.1.2.3",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.04),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.usage.output_tokens": 20,
        "kvroute.request_id": "id-1",
        "kvroute.client": "team-a",
        "kvroute.outcome": "completed",
        "kvroute.attempts": 1,
        "kvroute.policy": "stub",
        "kvroute.reason": "round_robin",
        "kvroute.candidates": 1,
        "kvroute.worker": "w0",
        "kvroute.dp_rank": 0,
        "kvroute.trust": "exact",
        "kvroute.matched_tokens": 8,
        "kvroute.predicted_tokens": 0,
        "kvroute.cost_ms": 1.0,
    }


def test_what_an_attempt_says() -> None:
    assert named(record(), "forward").attributes == {
        "http.request.method": "POST",
        "server.address": "10.0.0.1",
        "server.port": 8000,
        "url.full": "http://10.0.0.1:8000/v1/chat/completions",
        "http.response.status_code": 200,
        "kvroute.worker": "w0",
        "kvroute.dp_rank": 0,
        "kvroute.outcome": "completed",
    }


def test_the_match_is_a_part_of_the_plan() -> None:
    made = record()
    plan = made.attempts[0].plan
    decision = plan.decision._replace(timing_us={"keys": 100, "match": 200, "score": 50})
    made.attempts = [replace(made.attempts[0], plan=plan._replace(decision=decision))]
    match = named(made, "match")
    assert match.end_ns - match.start_ns == pytest.approx(300_000, abs=1000)
    assert match.attributes == {"kvroute.keys_us": 100, "kvroute.match_us": 200}


def failed(kind: OutcomeKind, fault: Fault | None = None, **changes: object) -> RequestRecord:
    made = record(**changes)
    made.attempts = [
        replace(made.attempts[0], outcome=Outcome(kind), fault=fault, status=None if fault else 200)
    ]
    return made


@pytest.mark.parametrize(
    ("made", "request_error", "forward_error"),
    [
        (record(), None, None),
        (failed(OutcomeKind.CLIENT_CLOSED, status=None), None, None),
        (
            failed(
                OutcomeKind.CONNECT_FAILED,
                Fault.CONNECT,
                status=502,
                refusal=ErrorKind.UNREACHABLE,
            ),
            "worker_unreachable",
            str(Fault.CONNECT),
        ),
        (failed(OutcomeKind.BROKEN_OFF), "broken_off", "200"),
        (record(was_stopped=True, status=None), "stopped", None),
        (record(status=401, refusal=ErrorKind.UNAUTHORIZED, attempts=[]), None, None),
        (record(status=503, refusal=ErrorKind.NO_WORKER, attempts=[]), "no_worker", None),
    ],
)
def test_errors_are_ours_and_the_workers(
    made: RequestRecord, request_error: str | None, forward_error: str | None
) -> None:
    span = request_span(made)
    assert span.error == span.attributes.get("error.type") == request_error
    forwards = [one for one in walk(span) if one.name == "forward"]
    assert [one.error for one in forwards] == [forward_error] * len(forwards)


@pytest.mark.parametrize("method", ["BREW", "", "x" * 10_000, "get"])
def test_names_and_methods_are_of_few(method: str) -> None:
    span = request_span(record(method=method, route=None, api="other", path="/x" * 5_000))
    assert span.name == "HTTP"
    assert span.attributes["http.request.method"] == "_OTHER"
    assert len(str(span.attributes["url.path"])) <= 513
    assert "gen_ai.operation.name" not in span.attributes


def test_numbers_fit_into_a_span() -> None:
    made = record()
    outcome = Outcome(OutcomeKind.COMPLETED, 10**30, 1 << 64, 5)
    made.attempts = [replace(made.attempts[0], outcome=outcome)]
    attributes = request_span(made).attributes
    assert attributes["gen_ai.usage.input_tokens"] == MAX_COUNT
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == MAX_COUNT


def test_a_request_that_was_never_one_is_a_span_too() -> None:
    bare = RequestRecord("id", "", "", None, 1.0, 2.0, status=400, refusal=ErrorKind.MALFORMED)
    span = request_span(bare)
    assert (span.name, span.children, span.start_ns) == ("HTTP", (), span.end_ns)


def test_waits_are_spans_each_and_the_one_in_vain_lasts_to_the_end() -> None:
    waits = [(50.010, 50.011), (50.02, 50.0200001), (50.03, 50.05)]
    made = record(waits=waits, waits_since=50.09, first_byte_at=None)
    spans = [ms(one) for one in walk(request_span(made)) if one.name == "queue"]
    assert spans == [(10, 11), (30, 50), (90, 100)]
    assert made.queued_s == pytest.approx(0.031, abs=1e-6)


def test_a_wait_in_vain_ends_where_the_answer_that_there_is_begins() -> None:
    """A worker's error whose body comes slowly, after nobody else would take the request."""
    made = record(waits=[], waits_since=50.020, first_byte_at=50.030, ended_at=60.0)
    assert made.queued_s == pytest.approx(0.010, abs=1e-6)
    assert [one.name for one in request_span(made).children].count("queue") == 1
