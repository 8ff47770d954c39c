"""One request's way to a worker and back: plan, forward, relay; once more elsewhere if nothing came.

    plan ─▶ lease ─▶ send ─┬─ no answer ───────────▶ another rank, or 502/504
                           ├─ 5xx, 429, 503 ───────▶ another rank once it is booked, else this answer
                           └─ any other status ────▶ relay ─▶ usage ─▶ end

Until the first byte of an answer has been relayed a request may be sent to another rank, within a
budget of attempts; from then on a broken answer is told to the client and never mended. A request on which
two workers closed their connection without a byte goes to no third one: it may be what they died of.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol import Rank
from router.answer import Answer
from router.broken_answers import BrokenAnswers
from router.counters import DataCounters, RetryReason
from router.errors import ErrorKind, FrontDoorError, sse_error
from router.headers import DP_RANK, REQUEST_ID, RawHeader, read_answer_head, without_base
from router.hops import Hops, new_hops
from router.lease import Lease, OutcomeListener
from router.outages import Outages
from router.score_header import score_field
from router.stream_start import StreamStart, Verdict
from router.tail import Tail, Usage, has_error_event, read_usage
from router.upstream import Fault, Upstream, UpstreamAnswer, UpstreamError
from scoring.brain import (
    Brain,
    NoCandidateError,
    Outcome,
    OutcomeKind,
    Plan,
    PlanRequest,
    TooManyRequestsError,
)
from scoring.decision import Decision, Exclusion

_SILENT = frozenset({Fault.TIMEOUT, Fault.UNHEALTHY})
_MAX_DEATHS = 2
"""Workers that may die on one request before it is held to be what they die of."""
_BUSY_STATUSES = frozenset({429, 503})
_OUTCOMES = {
    Fault.CONNECT: OutcomeKind.CONNECT_FAILED,
    Fault.RESET: OutcomeKind.BROKEN_OFF,
    Fault.MALFORMED: OutcomeKind.WORKER_ERROR,
    Fault.TIMEOUT: OutcomeKind.TIMED_OUT,
    Fault.UNHEALTHY: OutcomeKind.TIMED_OUT,
}
_RETRIES = {
    Fault.CONNECT: RetryReason.CONNECT,
    Fault.RESET: RetryReason.RESET,
    Fault.MALFORMED: RetryReason.MALFORMED,
    Fault.UNHEALTHY: RetryReason.UNHEALTHY,
}
_REFUSALS = {
    Fault.CONNECT: (ErrorKind.UNREACHABLE, "the worker could not be reached"),
    Fault.RESET: (ErrorKind.BROKEN_OFF, "the worker closed the connection before it answered"),
    Fault.MALFORMED: (ErrorKind.BROKEN_OFF, "the worker's answer was not HTTP"),
    Fault.TIMEOUT: (ErrorKind.TIMED_OUT, "the worker did not answer in time"),
    Fault.UNHEALTHY: (ErrorKind.TIMED_OUT, "the worker stopped answering"),
}


def _nobody(_request: PlanRequest, _now: float) -> Plan | None:
    return None


class Forward(NamedTuple):
    """One request as it goes on to a worker.

    Attributes:
        plan: what the brain is asked.
        target: raw path and query.
        may_repeat: sending it twice does no harm.
        reads_usage: the answer's end is read for what the engine reports.
        started_at: when the client's request came, monotonic seconds.
        shows_score: the client is told how its rank was weighed.
    """

    plan: PlanRequest
    method: str
    target: str
    headers: Sequence[RawHeader]
    body: bytes
    may_repeat: bool
    reads_usage: bool
    started_at: float
    shows_score: bool = False


@dataclass(frozen=True, slots=True)
class Relay:
    """What every exchange works with.

    Attributes:
        max_attempts: ranks that one request is sent to at most.
        names_worker: tell the client which rank served it.
        on_trial: plans a request that has no candidate on a worker whose breaker is open.
        outages: tells of workers that turn unhealthy.
        hops: names this router on the way of its requests.
        broken_answers: tells the log of answers that break off.
    """

    brain: Brain
    upstream: Upstream
    listener: OutcomeListener
    counters: DataCounters
    max_attempts: int = 3
    names_worker: bool = True
    clock: Callable[[], float] = time.monotonic
    on_trial: Callable[[PlanRequest, float], Plan | None] = _nobody
    outages: Outages = field(default_factory=Outages)
    hops: Hops = field(default_factory=new_hops)
    broken_answers: BrokenAnswers = field(default_factory=BrokenAnswers)


class Exchange:
    """One request. ``run`` it once."""

    __slots__ = (
        "_answer",
        "_excluded",
        "_forward",
        "_has_refreshed",
        "_num_attempts",
        "_num_deaths",
        "_relay",
        "_was_busy",
    )

    def __init__(self, relay: Relay, forward: Forward, answer: Answer) -> None:
        self._relay = relay
        self._forward = forward
        self._answer = answer
        self._excluded: frozenset[Rank] = frozenset()
        self._num_attempts = 0
        self._num_deaths = 0
        self._was_busy = False
        self._has_refreshed = False

    async def run(self) -> None:
        """Serve the request.

        Every lease that is booked is ended, however this ends. Cancelling closes the connection to
        the worker.

        Raises:
            NoCandidateError: no rank can take it; nothing was sent to the client.
            TooManyRequestsError: the brain is full; nothing was sent to the client.
            FrontDoorError: every attempt failed; nothing was sent to the client.
        """
        lease: Lease | None = self._book()
        while lease is not None:
            with lease:
                lease = await self._attempt(lease)

    async def _attempt(self, lease: Lease) -> Lease | None:
        """Send to the lease's rank and relay the answer; or return the lease of the next attempt."""
        try:
            with self._relay.outages.wait_for(lease.plan.rank.worker):
                answer = await self._send(lease)
        except UpstreamError as error:
            lease.end(Outcome(_OUTCOMES[error.fault]))
            another = self._after_fault(lease, error.fault)
            if another is None:
                kind, message = _REFUSALS[error.fault]
                raise FrontDoorError(kind, message) from error
            return another
        try:
            another = self._instead_of(lease, answer.status)
            if another is None:
                await self._relay_answer(lease, answer)
            return another
        finally:
            answer.close()

    async def _send(self, lease: Lease) -> UpstreamAnswer:
        """Send the request. A kept connection that was closed while idle shows as one that breaks at once,
        so the first that does is followed by one more try on the same rank. A worker that cannot be connected
        to for that try did not idle: it has died."""
        forward, plan = self._forward, lease.plan
        headers = forward.headers
        if len(plan.dp_ranks) > 1:
            headers = [field for field in headers if field[0] != DP_RANK]
            headers.append((DP_RANK, b"%d" % plan.dp_ranks.index(plan.rank.dp_rank)))
        url = plan.url + forward.target
        try:
            return await self._relay.upstream.send(forward.method, url, headers, forward.body)
        except UpstreamError as error:
            if not error.is_stale or self._has_refreshed or not forward.may_repeat:
                raise
        self._has_refreshed = True
        self._relay.counters.retries[RetryReason.FRESH_CONNECTION] += 1
        try:
            return await self._relay.upstream.send(forward.method, url, headers, forward.body)
        except UpstreamError as error:
            self._num_deaths += error.fault is Fault.CONNECT
            raise

    def _after_fault(self, lease: Lease, fault: Fault) -> Lease | None:
        """Another rank after no answer. What may have been begun is repeated only if that does no harm, and
        never after a long wait."""
        self._num_deaths += fault is Fault.RESET
        if self._num_deaths >= _MAX_DEATHS:
            return None
        if fault is Fault.TIMEOUT or (fault is not Fault.CONNECT and not self._forward.may_repeat):
            return None
        return self._book_another(lease, _RETRIES[fault])

    def _instead_of(self, lease: Lease, status: int) -> Lease | None:
        """Another rank instead of an answer that says the worker is busy (once) or broken."""
        if status in _BUSY_STATUSES:
            if self._was_busy:
                return None
            self._was_busy = True
            lease.end(Outcome(OutcomeKind.BUSY))
            return self._book_another(lease, RetryReason.BUSY)
        if status >= 500:
            lease.end(Outcome(OutcomeKind.WORKER_ERROR))
            if self._forward.may_repeat:
                return self._book_another(lease, RetryReason.WORKER_ERROR)
        return None

    def _book_another(self, lease: Lease, reason: RetryReason) -> Lease | None:
        """A lease on a rank of another worker, if the budget allows and there is one."""
        plan = lease.plan
        self._excluded |= {Rank(plan.rank.worker, rank) for rank in plan.dp_ranks}
        if self._num_attempts >= self._relay.max_attempts:
            return None
        try:
            another = self._book()
        except (NoCandidateError, TooManyRequestsError):
            return None
        self._relay.counters.retries[reason] += 1
        return another

    def _book(self) -> Lease:
        """Ask the brain for a rank.

        Raises:
            NoCandidateError: no rank can take it.
            TooManyRequestsError: the brain is full.
        """
        relay, request = self._relay, self._forward.plan
        if self._excluded:
            request = request._replace(excluded=self._excluded)
        now = relay.clock()
        try:
            plan = relay.brain.plan(request, now)
        except NoCandidateError as error:
            otherwise = self._plan_otherwise(request, error.decision, now)
            if otherwise is None:
                raise
            plan = otherwise
        self._num_attempts += 1
        return Lease(relay.brain, plan, relay.clock, relay.listener)

    def _plan_otherwise(self, request: PlanRequest, decision: Decision, now: float) -> Plan | None:
        """A trial of a worker whose breaker is open, or another question; None where there is neither."""
        relay = self._relay
        if Exclusion.BREAKER_OPEN in _exclusions(decision):
            trial = relay.on_trial(request, now)
            if trial is not None:
                return trial
        second = _second_question(request, decision)
        return None if second is None else relay.brain.plan(second, now)

    async def _relay_answer(self, lease: Lease, answer: UpstreamAnswer) -> None:
        """Pass the answer on as it comes."""
        head = read_answer_head(answer.headers, answer.status)
        relayed = head.relayed
        if head.has_location:
            relayed = without_base(relayed, lease.plan.url)
        await self._answer.begin(answer.status, relayed + self._own_headers(lease))
        is_readable = self._forward.reads_usage and not head.is_encoded
        tail = Tail() if is_readable or head.is_event_stream else None
        is_plain_stream = head.is_event_stream and not head.is_encoded
        start = StreamStart() if is_plain_stream and answer.status < 400 else None
        try:
            await self._relay_body(lease, answer, tail, start)
        except UpstreamError as error:
            is_silent = error.fault in _SILENT
            kind = OutcomeKind.TIMED_OUT if is_silent else OutcomeKind.BROKEN_OFF
            lease.end(Outcome(kind))
            self._note_broken(lease, error)
            if is_plain_stream and tail is not None and not head.has_length:
                await self._tell_broken(tail, error.fault)
            # The answer is left unfinished: the server aborts the transfer, so that the client can tell.

    def _note_broken(self, lease: Lease, error: UpstreamError) -> None:
        relay, request_id = self._relay, self._forward.plan.request_id
        relay.counters.broken_streams += 1
        worker = lease.plan.rank.worker
        relay.broken_answers.broke_off(request_id, worker, str(error), relay.clock())

    async def _relay_body(
        self, lease: Lease, answer: UpstreamAnswer, tail: Tail | None, start: StreamStart | None
    ) -> None:
        is_first = True
        while True:
            chunk = await (self._first_chunk(lease, answer) if is_first else answer.read())
            if is_first and chunk:
                is_first = False
                now = self._relay.clock()
                self._relay.counters.ttft_s.observe(now - self._forward.started_at)
            if start is not None and start.feed(chunk) is Verdict.CONTENT:
                lease.first_byte()
            if tail is not None:
                tail.append(chunk)
            if answer.is_complete:
                lease.end(self._outcome(lease, answer.status, tail, start))
                await self._answer.finish(chunk)
                return
            await self._answer.write(chunk)

    async def _first_chunk(self, lease: Lease, answer: UpstreamAnswer) -> bytes:
        """What comes after the head, if the worker has not stopped answering."""
        if answer.is_ended:
            return answer.take_now()
        with self._relay.outages.wait_for(lease.plan.rank.worker):
            return await answer.read()

    async def _tell_broken(self, tail: Tail, fault: Fault) -> None:
        """A last event that says so; the framing must leave room for it."""
        kind = ErrorKind.TIMED_OUT if fault in _SILENT else ErrorKind.BROKEN_OFF
        event = sse_error(FrontDoorError(kind, "the worker broke off within its answer"))
        await self._answer.write(event if tail.ends_event() else b"\n\n" + event)

    def _outcome(
        self, lease: Lease, status: int, tail: Tail | None, start: StreamStart | None
    ) -> Outcome:
        if status in _BUSY_STATUSES:
            return Outcome(OutcomeKind.BUSY)
        if status >= 500:
            return Outcome(OutcomeKind.WORKER_ERROR)
        if status >= 400:
            return Outcome(OutcomeKind.CLIENT_ERROR)
        end = b"" if tail is None else tail.last_bytes()
        if start is not None and (start.verdict is Verdict.ERROR or has_error_event(end)):
            return Outcome(OutcomeKind.WORKER_ERROR)
        if tail is None or not self._forward.reads_usage:
            return Outcome(OutcomeKind.COMPLETED)
        if start is not None and start.verdict is Verdict.NOTHING_YET:
            return Outcome(OutcomeKind.WORKER_ERROR)  # a stream of nothing proves no prefill
        usage = read_usage(end)
        self._count_usage(lease, usage)
        return Outcome(
            OutcomeKind.COMPLETED, usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
        )

    def _count_usage(self, lease: Lease, usage: Usage) -> None:
        if usage.cached_tokens is None:
            return
        counters = self._relay.counters
        counters.reported_cached_tokens += usage.cached_tokens
        counters.reported_prompt_tokens += usage.prompt_tokens or 0
        counters.predicted_cached_tokens += lease.plan.matched_tokens

    def _own_headers(self, lease: Lease) -> list[RawHeader]:
        own = [(REQUEST_ID, self._forward.plan.request_id.encode())]
        if self._relay.names_worker:
            rank = lease.plan.rank
            own.append((b"x-kvroute-worker", rank.worker.encode()))
            own.append((b"x-kvroute-dp-rank", b"%d" % rank.dp_rank))
        if self._forward.shows_score:
            own.append(score_field(lease.plan))
        return own


def _second_question(request: PlanRequest, decision: Decision) -> PlanRequest | None:
    """What to ask instead, where a worker's own answer is the best one; None where there is nothing.

    A prompt that is too long for all is refused in the engine's words; an unrouted path may mean something
    else by "model".
    """
    reasons = _exclusions(decision)
    if request.tokens is not None and Exclusion.PROMPT_TOO_LONG in reasons:
        return request._replace(tokens=None)
    if request.api == "other" and request.model is not None and is_unknown_model(decision):
        return request._replace(model=None)
    return None


def _exclusions(decision: Decision) -> frozenset[str]:
    """Every reason for which a rank was no candidate."""
    named = (candidate.excluded_by for candidate in decision.candidates)
    return frozenset(decision.excluded) | {reason for reason in named if reason is not None}


def is_unknown_model(decision: Decision) -> bool:
    """Was every rank excluded because it serves another model?"""
    return _exclusions(decision) == {Exclusion.OTHER_MODEL}
