"""What the router knows of one worker, whether it has been reached yet or not."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prompt import PromptModel
from protocol import PoolName, Rank, WorkerId, WorkerSpec
from router.breaker import Breaker, BreakerState
from router.discovery import Discovered, NamedEvents
from router.health import HealthRecord
from scoring import Exclusion


class WorkerState(StrEnum):
    """One word for a worker, as people read it."""

    PENDING = "pending"  # never reached
    REFUSED = "refused"  # does a part of the work only
    SERVING = "serving"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"
    BREAKER_OPEN = "breaker_open"
    SLEEPING = "sleeping"


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker, from its coming to its going: one that comes again is another one.

    Attributes:
        events: endpoints that the operator names, in place of what the worker says.
        storage_pool: the pool that the operator says it shares.
        max_in_flight: requests that the operator says each rank is to be given at once.
        since: when it was added, or learned first; monotonic seconds.
        discovered: None until it was reached.
        doubt: set where a request could not connect, so that the worker is probed soon.
        is_refused: it says that it does a part of the work only; it takes no part until it says otherwise.
        error: why the last attempt to learn it failed; None where it did not.
        restarts: of its event streams, as counted when it was last learned.
        proved: as what, with what, and when its tokens were last compared with the router's own.
        probe_fault: why the last probe of its health failed; None where it did not.
    """

    worker: WorkerId
    url: str
    health: HealthRecord
    breaker: Breaker
    since: float
    events: NamedEvents | None = None
    discovered: Discovered | None = None
    storage_pool: PoolName | None = None
    max_in_flight: int | None = None
    is_draining: bool = False
    error: str | None = None
    is_refused: bool = False
    probe_fault: str | None = None
    num_attempts: int = 0
    restarts: Mapping[Rank, int] = field(default_factory=dict)
    proved: tuple[WorkerSpec, PromptModel | None, float] | None = None
    doubt: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def spec(self) -> WorkerSpec | None:
        """As it was learned."""
        return None if self.discovered is None else self.discovered.spec

    @property
    def served_names(self) -> Collection[str]:
        """Names of models that requests may use for it; none until it was reached."""
        spec = self.spec
        return () if spec is None else (spec.model, *spec.aliases, *spec.adapter_names)

    @property
    def exclusion(self) -> Exclusion | None:
        """Why it takes no requests, draining apart."""
        if not self.health.is_healthy:
            return Exclusion.UNHEALTHY
        if self.discovered is not None and self.discovered.is_asleep:
            return Exclusion.SLEEPING
        if self.breaker.state is BreakerState.OPEN:
            return Exclusion.BREAKER_OPEN
        return None

    @property
    def trouble(self) -> str | None:
        """The last cause of what is wrong with it; None where nothing is known to be."""
        if self.health.is_healthy and self.breaker.state is BreakerState.OPEN:
            return self.breaker.why_open
        return self.probe_fault or self.error

    @property
    def state(self) -> WorkerState:
        """Where it stands."""
        if self.discovered is None:
            return WorkerState.REFUSED if self.is_refused else WorkerState.PENDING
        if self.is_draining:
            return WorkerState.DRAINING
        excluded = self.exclusion
        return WorkerState.SERVING if excluded is None else WorkerState(excluded.value)
