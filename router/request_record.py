"""What is remembered of one request while it is served, for the access log and for traces.

There is one only where somebody wants to know: it comes with the request's scope, and everything that has to do
with it stands around the parts that serve, not within them. Times are monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from starlette.types import Scope

from router.errors import ErrorKind
from router.trace_context import Trace, hex_trace_id
from router.upstream_faults import Fault
from scoring.brain import Outcome, OutcomeKind, Plan, PlanRequest
from scoring.decision import Candidate, Decision

_EXTENSION = "kvroute.record"


class RequestEnd(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    CLIENT_CLOSED = "client_closed"
    CLIENT_ERROR = "client_error"  # 4xx of the worker
    BUSY = "busy"  # 429 or 503 of the worker
    WORKER_ERROR = "worker_error"  # other 5xx of the worker, or an error event in its stream
    CONNECT_FAILED = "connect_failed"
    BROKEN_OFF = "broken_off"
    TIMED_OUT = "timed_out"
    ANSWERED = "answered"  # by the router itself, as it should
    REFUSED = "refused"  # by the router, and not sent to any worker
    STOPPED = "stopped"  # the router stopped
    FAILED = "failed"  # within the router


_ENDS: Mapping[OutcomeKind, RequestEnd] = {
    OutcomeKind.COMPLETED: RequestEnd.COMPLETED,
    OutcomeKind.CLIENT_CLOSED: RequestEnd.CLIENT_CLOSED,
    OutcomeKind.CLIENT_ERROR: RequestEnd.CLIENT_ERROR,
    OutcomeKind.BUSY: RequestEnd.BUSY,
    OutcomeKind.WORKER_ERROR: RequestEnd.WORKER_ERROR,
    OutcomeKind.CONNECT_FAILED: RequestEnd.CONNECT_FAILED,
    OutcomeKind.BROKEN_OFF: RequestEnd.BROKEN_OFF,
    OutcomeKind.STALE: RequestEnd.BROKEN_OFF,
    OutcomeKind.TIMED_OUT: RequestEnd.TIMED_OUT,
}


@dataclass(slots=True, eq=False)
class Attempt:
    """One plan, and what became of it.

    Attributes:
        asked_at, planned_at: when the brain was asked, and had answered.
        span_id: of the span that the worker is told as its parent; 0 where there are no traces.
        num_sends: 2 where a kept connection broke at once; 0 where nothing was sent.
        status: of the worker's answer.
        first_byte_at: of content, where the answer is a stream.
    """

    plan: Plan
    asked_at: float
    planned_at: float
    span_id: int = 0
    num_sends: int = 0
    sent_at: float | None = None
    head_at: float | None = None
    status: int | None = None
    fault: Fault | None = None
    first_byte_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One request.

    Attributes:
        request_id: as the worker, the answer and the decision log have it.
        path: raw, without its query.
        address: the client's.
        time: wall clock at the start, seconds since the epoch.
        trace_id: of the client's trace, or of the one that begins here.
        trace: None where requests are not traced here.
        route: the path, where it is one that prompts come by.
        client: the name of the key that it came with.
        asked: what the brain was asked last, prompt apart.
        asked_at: when it was asked first.
        waits: from when until when it waited for a rank, for each rank that it got.
        waits_since: when the brain was asked for a rank that it has not got.
        unplanned: the last decision that chose nobody.
        status: of the answer; None where there was none.
        first_byte_at: of the answer's body.
        refusal: what the router itself answered, where that was no success.
        is_finished: the answer's last byte was handed over.
        was_stopped: the process stopped within it.
    """

    request_id: str
    method: str
    path: str
    address: str | None
    started_at: float
    time: float
    trace_id: int | None = None
    trace: Trace | None = None
    http_version: str = "1.1"
    scheme: str = "http"
    route: str | None = None
    api: str = "other"
    client: str | None = None
    asked: PlanRequest | None = None
    asked_at: float | None = None
    waits: list[tuple[float, float]] = field(default_factory=list)
    waits_since: float | None = None
    unplanned: Decision | None = None
    attempts: list[Attempt] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0
    status: int | None = None
    first_byte_at: float | None = None
    ended_at: float | None = None
    refusal: ErrorKind | None = None
    is_finished: bool = False
    was_stopped: bool = False

    @property
    def last_attempt(self) -> Attempt | None:
        """The one whose answer the client got, if it got one."""
        return self.attempts[-1] if self.attempts else None

    @property
    def decision(self) -> Decision | None:
        """The last one."""
        last = self.last_attempt
        return self.unplanned if last is None else last.plan.decision

    @property
    def chosen(self) -> Candidate | None:
        """The last chosen rank as it was weighed."""
        decision = self.decision
        if decision is None or decision.chosen is None or not decision.candidates:
            return None
        return decision.candidates[0]

    @property
    def hex_trace_id(self) -> str | None:
        """As it is written."""
        return None if self.trace_id is None else hex_trace_id(self.trace_id)

    def all_waits(self) -> list[tuple[float, float]]:
        """With the last one, if that was in vain: it was over when an answer began, whosever."""
        until = self.ended_at if self.first_byte_at is None else self.first_byte_at
        if self.waits_since is None or until is None:
            return self.waits
        return [*self.waits, (self.waits_since, until)]

    @property
    def queued_s(self) -> float:
        """That it waited for ranks: each time from the first question to the one that was answered."""
        return sum(until - since for since, until in self.all_waits())

    @property
    def end(self) -> RequestEnd:
        """How it ended, once it has."""
        if self.was_stopped or self.refusal is ErrorKind.STOPPING:
            return RequestEnd.STOPPED
        if self.refusal is ErrorKind.INTERNAL:
            return RequestEnd.FAILED
        last = self.last_attempt
        if last is None:
            return self._end_here()
        kind = OutcomeKind.CLIENT_CLOSED if last.outcome is None else last.outcome.kind
        if kind is OutcomeKind.COMPLETED and not self.is_finished:
            return RequestEnd.CLIENT_CLOSED
        return _ENDS[kind]

    def _end_here(self) -> RequestEnd:
        """Of what was not placed; what all workers were asked has the best of their answers."""
        if self.refusal is not None:
            return RequestEnd.REFUSED
        if self.status is None:
            return RequestEnd.CLIENT_CLOSED
        if self.status < 400:
            return RequestEnd.ANSWERED
        if self.status in (429, 503):
            return RequestEnd.BUSY
        return RequestEnd.CLIENT_ERROR if self.status < 500 else RequestEnd.WORKER_ERROR


def attached(record: RequestRecord, scope: Scope) -> Scope:
    """A scope like this one, in which those who serve the request find its record."""
    return {**scope, "extensions": {**(scope.get("extensions") or {}), _EXTENSION: record}}


def record_of(scope: Scope) -> RequestRecord | None:
    """The request's record; None where nobody wants one."""
    record: RequestRecord | None = scope["extensions"].get(_EXTENSION)
    return record
