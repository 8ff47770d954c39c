"""What every exchange works with: the brain, the way to workers, and who is told of what happens."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from router.broken_answers import BrokenAnswers
from router.counters import DataCounters
from router.headers import RawHeader
from router.hops import Hops, new_hops
from router.lease import OutcomeListener
from router.outages import Outages
from router.retry_budget import RetryBudget
from router.upstream import UpstreamAnswer
from router.waiting_queue import WaitingQueue
from scoring.brain import Brain, Plan, PlanRequest


class Sender(Protocol):
    """The way to workers."""

    async def send(
        self,
        method: str,
        url: str,
        headers: Sequence[RawHeader],
        body: bytes,
        *,
        is_fresh: bool = False,
    ) -> UpstreamAnswer:
        """Send one request once, and wait for the head of its answer.

        Raises:
            UpstreamError: no head came.
        """


def _nobody(_request: PlanRequest, _now: float) -> Plan | None:
    return None


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
        retries: what all requests together may be tried again.
        queue: where requests wait for room.
    """

    brain: Brain
    upstream: Sender
    listener: OutcomeListener
    counters: DataCounters
    max_attempts: int = 3
    names_worker: bool = True
    clock: Callable[[], float] = time.monotonic
    on_trial: Callable[[PlanRequest, float], Plan | None] = _nobody
    outages: Outages = field(default_factory=Outages)
    hops: Hops = field(default_factory=new_hops)
    broken_answers: BrokenAnswers = field(default_factory=BrokenAnswers)
    retries: RetryBudget = field(default_factory=RetryBudget)
    queue: WaitingQueue = field(default_factory=WaitingQueue)
