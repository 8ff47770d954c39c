"""One request tries a worker whose breaker is open, where nobody else can take it.

Breakers keep requests away from workers that fail so that others serve them. Where there are no others, refusing
every request until a cool-down is over would only make a short outage longer. So one is let through, to the
worker whose breaker would half open soonest and which no request has tried of late; each breaker bounds how often.
"""

from router.registry import Registry
from scoring import Plan, Planner, PlanRequest
from scoring.decision import Exclusion


class Trials:
    """Plans a request on a worker that takes none."""

    def __init__(self, registry: Registry, planner: Planner) -> None:
        self._registry = registry
        self._planner = planner

    def plan(self, request: PlanRequest, now: float) -> Plan | None:
        """A plan for a request that has no candidate; None where it may try nobody. O(ranks).

        Raises:
            TooManyRequestsError: too many plans are open.
        """
        due = {
            record.worker: record
            for record in self._registry.records()
            if record.breaker.may_try(now)
        }
        if not due:
            return None
        candidates = self._planner.explain(request, now, all_candidates=True).candidates
        cooling = {one.worker for one in candidates if one.excluded_by is Exclusion.BREAKER_OPEN}
        fitting = [record for worker, record in due.items() if worker in cooling]
        for record in sorted(fitting, key=lambda one: one.breaker.half_opens_at):
            self._planner.set_excluded(record.worker, None)
            try:
                if self._planner.explain(request, now).chosen is None:
                    continue  # its prompt is too long there, or the worker has been tried
                plan = self._planner.plan(request, now)
            finally:
                self._planner.set_excluded(record.worker, record.exclusion)
            record.breaker.tried(now)
            return plan
        return None
