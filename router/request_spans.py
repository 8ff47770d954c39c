"""A request's spans, made of its record once it has ended.

    POST /v1/chat/completions              server
    ├── tokenize                           render and tokenize
    ├── queue                              one each time that it waited for a rank
    ├── plan ── match                      one an attempt
    └── forward ── first_byte              one an attempt; client. The worker's parent

Stages of which only the duration is known are set at the end of what they are part of.

Source: OpenTelemetry's semantic conventions for HTTP spans and for generative AI.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from prompt import Api
from router.access_line import MAX_COUNT, MAX_PATH
from router.plain_text import plain
from router.request_record import Attempt, RequestEnd, RequestRecord
from scoring.brain import OutcomeKind
from scoring.decision import Candidate, Decision

Attributes = dict[str, str | int | float | bool]

_METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
)
_OPERATIONS = {
    Api.CHAT: "chat",
    Api.RESPONSES: "chat",
    Api.MESSAGES: "chat",
    Api.COMPLETIONS: "text_completion",
    Api.GENERATE: "text_completion",
}
_OUR_FAULTS = frozenset({RequestEnd.STOPPED, RequestEnd.FAILED})
_BROKEN = frozenset({RequestEnd.BROKEN_OFF, RequestEnd.TIMED_OUT, RequestEnd.WORKER_ERROR})
_STAGES = ("render", "tokenize")
_MIN_WAIT_S = 0.001  # what is refused at once has not waited
_NO_ERRORS = frozenset({OutcomeKind.COMPLETED, OutcomeKind.CLIENT_CLOSED})


class SpanFate(StrEnum):
    """What became of a span."""

    MADE = "made"  # all of them
    EXPORTED = "exported"
    FAILED = "failed"


class Kind(StrEnum):
    """Where a span stands."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class SpanValues:
    """One span.

    Attributes:
        start_ns, end_ns: since the epoch.
        span_id: where it is told to others already; 0 for any.
        error: why it counts as failed, of a closed set; None where it does not.
    """

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float | bool]
    kind: Kind = Kind.INTERNAL
    span_id: int = 0
    error: str | None = None
    children: tuple["SpanValues", ...] = ()


def request_span(record: RequestRecord) -> SpanValues:
    """The span of the request with all others in it."""
    end = record.end
    is_error = (record.status or 0) >= 500 or end in _OUR_FAULTS or end in _BROKEN
    error = str(record.refusal or end) if is_error else None
    ended_at = record.started_at if record.ended_at is None else record.ended_at
    return SpanValues(
        name=_name(record),
        start_ns=_ns(record, record.started_at),
        end_ns=_ns(record, ended_at),
        attributes=_request_attributes(record, error),
        kind=Kind.SERVER,
        span_id=0 if record.trace is None else record.trace.span_id,
        error=error,
        children=tuple(_children(record)),
    )


def _ns(record: RequestRecord, at: float) -> int:
    return round((record.time + at - record.started_at) * 1e9)


def _method(record: RequestRecord) -> str:
    return record.method if record.method in _METHODS else "_OTHER"


def _name(record: RequestRecord) -> str:
    """Of few: the path counts only where it is a route."""
    method = _method(record).replace("_OTHER", "HTTP")
    return method if record.route is None else f"{method} {record.route}"


def _request_attributes(record: RequestRecord, error: str | None) -> Attributes:
    found: dict[str, str | int | float | bool | None] = {
        "http.request.method": _method(record),
        "url.path": plain(record.path, MAX_PATH),
        "url.scheme": record.scheme,
        "http.route": record.route,
        "http.response.status_code": record.status,
        "http.request.body.size": record.bytes_in,
        "http.response.body.size": record.bytes_out,
        "network.protocol.version": record.http_version,
        "client.address": record.address,
        "error.type": error,
        "kvroute.request_id": record.request_id,
        "kvroute.client": record.client,
        "kvroute.outcome": str(record.end),
        "kvroute.attempts": len(record.attempts),
    }
    return _known({**found, **_gen_ai(record)}) | _decided(record.decision, record.chosen)


def _gen_ai(record: RequestRecord) -> Mapping[str, str | int | float | bool | None]:
    if record.api not in _OPERATIONS:
        return {}
    asked, last = record.asked, record.last_attempt
    outcome = None if last is None else last.outcome
    first_s = None if record.first_byte_at is None else record.first_byte_at - record.started_at
    return {
        "gen_ai.operation.name": _OPERATIONS[Api(record.api)],
        "gen_ai.request.model": None
        if asked is None or asked.model is None
        else plain(asked.model),
        "gen_ai.request.max_tokens": None if asked is None else asked.max_output_tokens,
        "gen_ai.request.stream": None if asked is None else asked.is_streaming,
        "gen_ai.response.time_to_first_chunk": first_s,
        "gen_ai.usage.input_tokens": None if outcome is None else outcome.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": None if outcome is None else outcome.cached_tokens,
        "gen_ai.usage.output_tokens": None if outcome is None else outcome.output_tokens,
    }


def _decided(decision: Decision | None, chosen: Candidate | None) -> Attributes:
    if decision is None:
        return {}
    found: dict[str, str | int | float | bool | None] = {
        "kvroute.policy": decision.policy,
        "kvroute.reason": str(decision.reason),
        "kvroute.prompt_tokens": decision.prompt_tokens,
        "kvroute.candidates": decision.num_candidates,
    }
    if chosen is not None:
        found |= {
            "kvroute.worker": chosen.worker,
            "kvroute.dp_rank": chosen.dp_rank,
            "kvroute.trust": str(chosen.trust),
            "kvroute.matched_tokens": chosen.matched_tokens,
            "kvroute.predicted_tokens": chosen.predicted_blocks * chosen.block_size,
            "kvroute.cost_ms": chosen.cost_ms,
        }
    return _known(found)


def _known(found: Mapping[str, str | int | float | bool | None]) -> Attributes:
    """What is known; numbers of workers are bounded, for a span takes none beyond 64 bits."""
    return {
        name: min(value, MAX_COUNT) if isinstance(value, int) else value
        for name, value in found.items()
        if value is not None
    }


def _children(record: RequestRecord) -> Iterator[SpanValues]:
    if record.asked_at is not None:
        yield from _before_plan(record, record.asked_at)
    for attempt in record.attempts:
        yield _plan(record, attempt)
        if attempt.sent_at is not None:
            yield _forward(record, attempt, attempt.sent_at)


def _before_plan(record: RequestRecord, asked_at: float) -> Iterator[SpanValues]:
    timing = record.asked.timing_us if record.asked is not None else {}
    spent = {stage: timing[stage] for stage in _STAGES if stage in timing}
    if spent:
        us = sum(spent.values())
        started_at = max(record.started_at, asked_at - us / 1e6)
        attributes = {f"kvroute.{stage}_us": value for stage, value in spent.items()}
        yield SpanValues("tokenize", _ns(record, started_at), _ns(record, asked_at), attributes)
    for since, until in record.all_waits():
        if until - since >= _MIN_WAIT_S:
            yield SpanValues("queue", _ns(record, since), _ns(record, until), {})


def _plan(record: RequestRecord, attempt: Attempt) -> SpanValues:
    decision = attempt.plan.decision
    start_ns, end_ns = _ns(record, attempt.asked_at), _ns(record, attempt.planned_at)
    timing = decision.timing_us
    match_ns = 1_000 * (timing.get("keys", 0) + timing.get("match", 0))
    chosen = decision.candidates[0] if decision.candidates else None
    match = SpanValues(
        "match",
        start_ns,
        min(end_ns, start_ns + match_ns),
        {f"kvroute.{stage}_us": timing[stage] for stage in ("keys", "match") if stage in timing},
    )
    attributes = _decided(decision, chosen)
    children = (match,) if "match" in timing else ()
    return SpanValues("plan", start_ns, end_ns, attributes, children=children)


def _forward(record: RequestRecord, attempt: Attempt, sent_at: float) -> SpanValues:
    """From the first byte to the worker to the last one from it."""
    kind = OutcomeKind.CLIENT_CLOSED if attempt.outcome is None else attempt.outcome.kind
    error = None if kind in _NO_ERRORS else str(attempt.fault or attempt.status or kind)
    plan = attempt.plan
    url = urlsplit(plan.url)
    ended_at = record.ended_at if attempt.ended_at is None else attempt.ended_at
    found: dict[str, str | int | float | bool | None] = {
        "http.request.method": _method(record),
        "server.address": url.hostname,
        "server.port": url.port or {"http": 80, "https": 443}[url.scheme],
        "url.full": plan.url + plain(record.path, MAX_PATH),
        "http.response.status_code": attempt.status,
        "http.request.resend_count": attempt.num_sends - 1 or None,
        "error.type": error,
        "kvroute.worker": plan.rank.worker,
        "kvroute.dp_rank": plan.rank.dp_rank,
        "kvroute.outcome": str(kind),
    }
    return SpanValues(
        "forward",
        _ns(record, sent_at),
        _ns(record, sent_at if ended_at is None else ended_at),
        _known(found),
        Kind.CLIENT,
        attempt.span_id,
        error,
        tuple(_first_byte(record, attempt, sent_at)),
    )


def _first_byte(record: RequestRecord, attempt: Attempt, sent_at: float) -> Iterator[SpanValues]:
    """The wait for content, or for the body where content is not looked for."""
    came_at = attempt.first_byte_at
    if came_at is None and attempt is record.last_attempt:
        came_at = record.first_byte_at
    if came_at is not None and attempt.head_at is not None:
        yield SpanValues("first_byte", _ns(record, sent_at), _ns(record, came_at), {})
