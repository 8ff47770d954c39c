"""Capacity: how many requests a rank is given at once, beyond which it is no candidate.

A bound, not a fault: requests that find every rank at its bound wait, or are refused, by whoever asked.
"""

import sys
from dataclasses import dataclass

from protocol import WorkerSpec

UNBOUNDED = sys.maxsize
"""The capacity of a rank without a bound, so that there is one comparison with or without it."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Where the bound of a worker's ranks comes from: its own, else the engine's word, else the fleet's.

    Attributes:
        max_in_flight: requests on each rank of a worker that has no bound of its own; None for no bound.
        engine_factor: times what the engine says that a rank runs at once; None where that is not asked.
    """

    max_in_flight: int | None = None
    engine_factor: float | None = None

    def of(self, spec: WorkerSpec) -> int:
        """Requests that each rank of the worker is given at once, at least 1; `UNBOUNDED` without a bound."""
        if spec.max_in_flight is not None:
            return spec.max_in_flight
        if self.engine_factor is not None and spec.max_running is not None:
            return max(round(self.engine_factor * spec.max_running), 1)
        return UNBOUNDED if self.max_in_flight is None else self.max_in_flight
