"""All open plans, in the order of their decisions, and those of them whose prefill time alone ends."""

from collections.abc import Iterable

from scoring.load import Lease, LoadBook, Phase
from scoring.open_plan import OpenPlan
from scoring.weighing import TimedPrompt
from scoring.worker_table import RankRow


class OpenPlans:
    """Plans by number. Whoever adds one asks first whether there is room for it. O(1) where nothing else is said.

    Args:
        limit: of plans.
    """

    __slots__ = ("_falling", "_last_id", "_limit", "_plans")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._plans: dict[int, OpenPlan] = {}
        self._falling: dict[int, OpenPlan] = {}  # not streamed, with tokens, in prefill
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, plan_id: int) -> bool:
        return plan_id in self._plans

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more."""
        return len(self._plans) >= self._limit

    def add(self, plan: OpenPlan) -> int:
        """Keep one; returns its number, which no other plan ever had."""
        self._last_id += 1
        self._plans[self._last_id] = plan
        if not plan.is_streaming and plan.prompt is not None:
            self._falling[self._last_id] = plan
        return self._last_id

    def get(self, plan_id: int) -> OpenPlan | None:
        """The plan; None where it is unknown or closed."""
        return self._plans.get(plan_id)

    def end_prefill(self, plan_id: int, plan: OpenPlan) -> None:
        """The rank has prefilled the prompt."""
        plan.lease.begin_decode()
        self._falling.pop(plan_id, None)

    def close(self, plan_id: int) -> OpenPlan | None:
        """Let go of one and release its lease; None where it is unknown, or was closed before."""
        plan = self._plans.pop(plan_id, None)
        if plan is not None:
            self._falling.pop(plan_id, None)
            plan.lease.release()
        return plan

    def next_falling(self, count: int) -> list[tuple[int, OpenPlan]]:
        """Up to so many plans whose prefill falls; who is returned goes last in turn. O(those that fall)."""
        waiting = [one for one in self._falling.items() if one[1].lease.phase is Phase.PREFILL]
        chosen = waiting[:count]
        self._falling = dict(waiting[count:] + chosen)
        return chosen

    def decided_before(self, at: float) -> list[int]:
        """Numbers of the plans that were decided before that time. O(their number)."""
        found: list[int] = []
        for plan_id, plan in self._plans.items():
            if plan.decided_at >= at:
                break
            found.append(plan_id)
        return found

    def under_way(self, row: RankRow) -> list[TimedPrompt]:
        """Prompts that the rank is yet to show it holds. O(open plans)."""
        return [
            prompt
            for plan in self._plans.values()
            if plan.row is row
            and not plan.is_observed
            and (prompt := plan.known_prompt) is not None
        ]

    def check(self, books: Iterable[LoadBook]) -> None:
        """Verify that what is booked is what open plans hold, and the order.

        Args:
            books: of all ranks that are known.
        """
        assert len(self._plans) <= self._limit, len(self._plans)
        leases: dict[LoadBook, list[Lease]] = {book: [] for book in books}
        for plan in self._plans.values():
            leases.setdefault(plan.lease.book, []).append(plan.lease)
        for book, booked in leases.items():
            book.check(booked)
        assert self._falling.keys() == {
            plan_id
            for plan_id, plan in self._plans.items()
            if not plan.is_streaming
            and plan.prompt is not None
            and plan.lease.phase is Phase.PREFILL
        }, self._falling
        decided = [plan.decided_at for plan in self._plans.values()]
        assert decided == sorted(decided), "open plans are in the order of their decisions"
