"""How many requests each rank is given at once, and how those wait that find none with room, as it is configured."""

from typing import Annotated

from pydantic import Field

from router.config_section import Section
from router.limits_config import Seconds
from router.priority import MAX_PRIORITY, PriorityRight
from router.waiting_queue import QueueLimits
from router.worker_entry import MAX_IN_FLIGHT
from scoring.capacity import Capacity


class QueueConfig(Section):
    """The bound of each rank, and the queue before them. Without a bound nobody waits.

    A request that finds every rank at its bound waits until one has room, the higher priority first, among equals the
    earlier. Clients may ask for less time with `x-kvroute-queue-timeout: SECONDS`, and for a priority with
    `x-kvroute-priority: N`, from -100 to 100.

    Attributes:
        max_in_flight: requests on each rank, of a worker that has no bound of its own; without a bound by default.
        engine_factor: bounds each rank by so many times what its engine runs at once, where it says that (SGLang), in
            place of `max_in_flight`. A little more than 1 keeps an engine's own queue short, and never empty.
        max_queued: requests that wait; a further one is answered 429, unless one of a lower priority waits, which is then.
            With 0 nobody waits.
        timeout_s: that one waits at most; then it is answered 429.
        max_priority: that requests without a key may ask for; those with one have what it allows.
    """

    max_in_flight: Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT)] | None = None
    engine_factor: Annotated[float, Field(gt=0, le=100)] | None = None
    max_queued: Annotated[int, Field(ge=0, le=65_536)] = 1024
    timeout_s: Seconds = 30.0
    max_priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0

    def capacity(self) -> Capacity:
        """As the planner takes it."""
        return Capacity(self.max_in_flight, self.engine_factor)

    def limits(self) -> QueueLimits:
        """As the queue takes them."""
        right = PriorityRight(min(0, self.max_priority), self.max_priority)
        return QueueLimits(self.max_queued, self.timeout_s, right)
