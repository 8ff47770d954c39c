"""A relay that notes in a request's record whatever it asks of the brain and sends to workers.

It takes the place of the plain relay for one request, so that an exchange knows nothing of records, and requests
that nobody records pass by none.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from protocol import Rank
from router.headers import RawHeader
from router.relay import Relay, Sender
from router.request_record import Attempt, RequestRecord
from router.trace_context import new_span_id, with_trace
from router.upstream import UpstreamAnswer, UpstreamError
from router.waiting_queue import is_at_capacity
from scoring.brain import Brain, NoCandidateError, Outcome, Plan, PlanRequest
from scoring.decision import Decision


def recorded(relay: Relay, record: RequestRecord) -> Relay:
    """The relay for this request."""
    notes = _Notes(record, relay.clock)
    return replace(
        relay,
        brain=_RecordedBrain(relay.brain, notes),
        upstream=_RecordedSender(relay.upstream, notes),
        on_trial=_RecordedTrial(relay.on_trial, notes).plan,
    )


class _Notes:
    """Writes into one record."""

    __slots__ = ("clock", "record")

    def __init__(self, record: RequestRecord, clock: Callable[[], float]) -> None:
        self.record = record
        self.clock = clock

    def asked(self, request: PlanRequest, now: float) -> None:
        record = self.record
        record.asked = request._replace(tokens=None)
        if record.asked_at is None:
            record.asked_at = now

    def not_planned(self, decision: Decision, asked_at: float) -> None:
        """Nobody takes it; where somebody would, had they room, it waits from now on."""
        record = self.record
        record.unplanned = decision
        if record.waits_since is None and is_at_capacity(decision):
            record.waits_since = asked_at

    def planned(self, plan: Plan, asked_at: float) -> None:
        record = self.record
        if record.waits_since is not None and asked_at > record.waits_since:
            record.waits.append((record.waits_since, asked_at))
        record.waits_since = None
        span_id = 0 if record.trace is None else new_span_id()
        record.attempts.append(Attempt(plan, asked_at, self.clock(), span_id))

    def attempt(self, plan_id: int) -> Attempt | None:
        """The last attempts come first: few requests have more than one."""
        for attempt in reversed(self.record.attempts):
            if attempt.plan.plan_id == plan_id:
                return attempt
        return None


class _RecordedBrain:
    """Passes every question on."""

    def __init__(self, brain: Brain, notes: _Notes) -> None:
        self._brain = brain
        self._notes = notes

    def plan(self, request: PlanRequest, now: float) -> Plan:
        self._notes.asked(request, now)
        try:
            plan = self._brain.plan(request, now)
        except NoCandidateError as error:
            self._notes.not_planned(error.decision, now)
            raise
        self._notes.planned(plan, now)
        return plan

    def takers(self, request: PlanRequest) -> frozenset[Rank]:
        return self._brain.takers(request)

    def first_byte(self, plan_id: int, now: float) -> None:
        attempt = self._notes.attempt(plan_id)
        if attempt is not None and attempt.first_byte_at is None:
            attempt.first_byte_at = now
        self._brain.first_byte(plan_id, now)

    def finish(self, plan_id: int, outcome: Outcome, now: float) -> None:
        attempt = self._notes.attempt(plan_id)
        if attempt is not None and attempt.outcome is None:
            attempt.outcome, attempt.ended_at = outcome, now
        self._brain.finish(plan_id, outcome, now)


class _RecordedTrial:
    """Tries workers whose breaker is open, which the brain is not asked about."""

    def __init__(
        self, on_trial: Callable[[PlanRequest, float], Plan | None], notes: _Notes
    ) -> None:
        self._on_trial = on_trial
        self._notes = notes

    def plan(self, request: PlanRequest, now: float) -> Plan | None:
        plan = self._on_trial(request, now)
        if plan is not None:
            self._notes.planned(plan, now)
        return plan


class _RecordedSender:
    """Sends for the last attempt, under its own span where there are traces."""

    def __init__(self, sender: Sender, notes: _Notes) -> None:
        self._sender = sender
        self._notes = notes

    async def send(
        self,
        method: str,
        url: str,
        headers: Sequence[RawHeader],
        body: bytes,
        *,
        is_fresh: bool = False,
    ) -> UpstreamAnswer:
        record, clock = self._notes.record, self._notes.clock
        attempt = record.attempts[-1]
        attempt.num_sends += 1
        if attempt.sent_at is None:
            attempt.sent_at = clock()
        if record.trace is not None:
            headers = with_trace(headers, record.trace.fields(attempt.span_id))
        try:
            answer = await self._sender.send(method, url, headers, body, is_fresh=is_fresh)
        except UpstreamError as error:
            attempt.fault = error.fault
            raise
        attempt.fault, attempt.head_at, attempt.status = None, clock(), answer.status
        return answer
