"""One request's way to a worker and back: plan, forward, relay; once more elsewhere if nothing came.

    plan ─▶ lease ─▶ send ─┬─ no answer ───────────▶ another rank, or 502/504
     │        ▲            ├─ 5xx, 429, 503 ───────▶ another rank once it is booked, else this answer
     └ wait ──┘            └─ any other status ────▶ relay ─▶ usage ─▶ end

A request for which no rank has room waits for one, and so does one that is to be repeated after a fault. After a worker's
own 429 or 503 it does not: that answer says more, and is passed on where nobody else has room at once.

Until the first byte of an answer has been relayed a request may be sent to another rank, within a bound of its own
and a budget of the fleet's; from then on a broken answer is told to the client and never mended. A request on which
two connections were closed without a byte is not sent a third time: it may be what the workers died of.
"""

from protocol import Rank
from router.answer import Answer
from router.counters import RetryReason
from router.errors import ErrorKind, FrontDoorError
from router.forward import Forward
from router.lease import Lease
from router.priority import priority_of, wait_bound_s
from router.rank_pinning import pinned
from router.relay import Relay
from router.relaying import BUSY_STATUSES, Relaying
from router.upstream import Fault, UpstreamAnswer, UpstreamError
from router.waiting_queue import Turn, is_at_capacity
from scoring.brain import (
    NoCandidateError,
    Outcome,
    OutcomeKind,
    Plan,
    PlanRequest,
    TooManyRequestsError,
)
from scoring.decision import Decision, Exclusion
from scoring.record import WAIT

_MAX_DEATHS = 2
"""Connections that one request may break without a byte before it is held to be what workers die of."""
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


class Exchange:
    """One request. ``run`` it once."""

    __slots__ = (
        "_answer",
        "_asked",
        "_excluded",
        "_forward",
        "_num_attempts",
        "_num_deaths",
        "_relay",
        "_waited_s",
        "_waits_until",
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
        self._asked = forward.plan  # the last question that had no answer
        self._waited_s = 0.0
        self._waits_until: float | None = None

    async def run(self) -> None:
        """Serve the request.

        Every lease that is booked is ended, however this ends. Cancelling closes the connection to
        the worker.

        Raises:
            NoCandidateError: no rank can take it; nothing was sent to the client.
            TooManyRequestsError: the brain is full; nothing was sent to the client.
            FrontDoorError: every attempt failed, or it waited in vain; nothing was sent to the client.
        """
        relay = self._relay
        relay.retries.began(relay.clock())
        if relay.queue.is_due:
            relay.queue.dispatch()  # whoever waits has its turn first
        lease = self._book_if_room()
        if lease is None:
            lease = await self._wait()
        while lease is not None:
            with lease:
                lease = await self._attempt(lease)

    async def _attempt(self, lease: Lease) -> Lease | None:
        """Send to the lease's rank and relay the answer; or return the lease of the next attempt."""
        try:
            with self._relay.outages.wait_for(lease.plan.rank.worker):
                answer = await self._send(lease)
        except UpstreamError as error:
            lease.end(Outcome(OutcomeKind.STALE if error.is_stale else _OUTCOMES[error.fault]))
            another = await self._after_fault(lease, error)
            if another is None:
                kind, message = _REFUSALS[error.fault]
                raise FrontDoorError(kind, message) from error
            return another
        try:
            is_fine = answer.status < 500 and answer.status not in BUSY_STATUSES
            another = None if is_fine else await self._instead_of(lease, answer.status)
            if another is None:
                await Relaying(self._relay, self._forward, lease, self._answer).run(answer)
            return another
        finally:
            answer.close()

    async def _send(self, lease: Lease) -> UpstreamAnswer:
        """Send the request, over a fresh connection once one has broken."""
        forward, plan = self._forward, lease.plan
        headers, body = forward.headers, forward.body
        if len(plan.dp_ranks) > 1:
            headers, body = pinned(plan, headers, body)
        return await self._relay.upstream.send(
            forward.method,
            plan.url + forward.target,
            headers,
            body,
            is_fresh=self._num_deaths > 0,
        )

    async def _after_fault(self, lease: Lease, error: UpstreamError) -> Lease | None:
        """Another rank after no answer. What may have been begun is repeated only if that does no harm, and
        never after a long wait.

        A kept connection that breaks at once may have been closed while it idled: it is the one fault after which
        the same worker is asked again, where there is nobody else.
        """
        fault = error.fault
        self._num_deaths += fault is Fault.RESET
        if self._num_deaths >= _MAX_DEATHS:
            return None
        if fault is Fault.TIMEOUT or (fault is not Fault.CONNECT and not self._forward.may_repeat):
            return None
        return await self._book_another(lease, _RETRIES[fault], or_same=error.is_stale)

    async def _instead_of(self, lease: Lease, status: int) -> Lease | None:
        """Another rank instead of an answer that says the worker is busy (once) or broken."""
        if status in BUSY_STATUSES:
            if self._was_busy:
                return None
            self._was_busy = True
            lease.end(Outcome(OutcomeKind.BUSY))
            return await self._book_another(lease, RetryReason.BUSY)
        lease.end(Outcome(OutcomeKind.WORKER_ERROR))
        if self._forward.may_repeat:
            return await self._book_another(lease, RetryReason.WORKER_ERROR)
        return None

    async def _book_another(
        self, lease: Lease, reason: RetryReason, *, or_same: bool = False
    ) -> Lease | None:
        """A lease on a rank of another worker, or else of the same; None where no bound allows it or nobody can."""
        relay = self._relay
        now = relay.clock()
        if relay.retries.left(now, relay.counters.in_flight) < 1:
            relay.counters.retries_withheld[reason] += 1
            return None
        relay.retries.spend(now)  # before it waits for room: others ask meanwhile
        another = None
        try:
            another = await self._book_elsewhere(lease, reason, or_same=or_same)
        finally:
            if another is None:
                relay.retries.give_back(now)
        return another

    async def _book_elsewhere(
        self, lease: Lease, reason: RetryReason, *, or_same: bool
    ) -> Lease | None:
        """With a rank of its worker excluded, and all the others of it; then, perhaps, without."""
        plan, before = lease.plan, self._excluded
        self._excluded |= {Rank(plan.rank.worker, rank) for rank in plan.dp_ranks}
        has_attempts = self._num_attempts < self._relay.max_attempts
        waits = reason is not RetryReason.BUSY
        another = None
        if has_attempts:
            another = await self._book_again(reason, waits=waits and not or_same)
        if another is None and or_same:
            self._excluded = before
            another = await self._book_again(RetryReason.FRESH_CONNECTION, waits=waits)
        return another

    async def _book_again(self, reason: RetryReason, *, waits: bool) -> Lease | None:
        """A further lease, if anybody can take the request; ``waits`` where nobody has room at once."""
        try:
            again = self._book_if_room()
            if again is None and waits:
                again = await self._wait()
        except (NoCandidateError, TooManyRequestsError, FrontDoorError):
            return None
        if again is None:
            return None
        self._relay.counters.retries[reason] += 1
        return again

    def _book_if_room(self) -> Lease | None:
        """Ask the brain for a rank; None where one would take the request, had it room.

        Raises:
            NoCandidateError: no rank would take it.
            TooManyRequestsError: the brain is full.
        """
        try:
            return self._book()
        except NoCandidateError as error:
            if not is_at_capacity(error.decision):
                raise
        return None

    async def _wait(self) -> Lease:
        """A lease once there is room; however often it waits, no longer than it may in all.

        Raises:
            NoCandidateError: nobody would take it if they had room.
            TooManyRequestsError: the brain is full.
            FrontDoorError: it may not wait, or not that long.
        """
        forward, queue = self._forward, self._relay.queue
        now, before_s = self._relay.clock(), self._waited_s
        patience_s = wait_bound_s(forward.headers, queue.limits.timeout_s)
        if self._waits_until is None:
            self._waits_until = now + patience_s

        def book(waited_s: float) -> Lease:
            self._waited_s = before_s + waited_s
            return self._book()

        return await queue.wait(
            Turn(
                priority=priority_of(forward.headers, forward.priority or queue.limits.priority),
                arrived_at=forward.started_at,
                until=self._waits_until,
                takers=lambda: self._relay.brain.takers(self._asked),
                book=book,
                is_patient=patience_s > 0,
            )
        )

    def _book(self) -> Lease:
        """Ask the brain for a rank.

        Raises:
            NoCandidateError: no rank can take it.
            TooManyRequestsError: the brain is full.
        """
        relay, request = self._relay, self._forward.plan
        if self._excluded:
            request = request._replace(excluded=self._excluded)
        if self._waited_s:
            waited_us = round(self._waited_s * 1e6)
            request = request._replace(timing_us={**request.timing_us, WAIT: waited_us})
        now = relay.clock()
        try:
            plan = relay.brain.plan(request, now)
        except NoCandidateError as error:
            self._asked = request
            otherwise = self._plan_otherwise(request, error.decision, now)
            if otherwise is None:
                raise
            plan = otherwise
        self._num_attempts += 1
        return Lease(relay.brain, plan, relay.clock, relay.listener)

    def _plan_otherwise(self, request: PlanRequest, decision: Decision, now: float) -> Plan | None:
        """A trial of a worker whose breaker is open, or another question; None where there is neither, or somebody
        would take it had they room."""
        if is_at_capacity(decision):
            return None
        relay = self._relay
        if Exclusion.BREAKER_OPEN in decision.excluded:
            trial = relay.on_trial(request, now)
            if trial is not None:
                return trial
        second = _second_question(request, decision, self._forward.means_model)
        if second is None:
            return None
        self._asked = second
        return relay.brain.plan(second, now)


def _second_question(
    request: PlanRequest, decision: Decision, means_model: bool
) -> PlanRequest | None:
    """What to ask instead, where a worker's own answer is the best one; None where there is nothing.

    A prompt that is too long for all is refused in the engine's words; a path that is not known may mean
    something else by "model".
    """
    if request.tokens is not None and Exclusion.PROMPT_TOO_LONG in decision.excluded:
        return request._replace(tokens=None)
    if not means_model and request.model is not None and is_unknown_model(decision):
        return request._replace(model=None)
    return None


def is_unknown_model(decision: Decision) -> bool:
    """Was every rank excluded because it serves another model?"""
    return decision.excluded.keys() == {Exclusion.OTHER_MODEL}
