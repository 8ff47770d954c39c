"""The waiting room: requests that found every rank which could take them at its capacity, in the order of their turn.

    enter ─▶ lane of those with the same takers ─▶ next ─┬─ placed   a rank has taken it
                                                         ├─ stuck    no room yet: its lane is due no more
                                                         └─ leave    it was refused, expired, or its client left

The higher priority goes first, among equals the earlier arrival. Requests that may go to the same ranks form a lane: a rank
that was freed makes the lanes due that wait for it, and one request is tried for each rank that was freed, so that
neither many are woken for one place nor one that cannot go holds up those that can. When marks of workers change every
lane is due, until its first one is stuck.

Pure: no clock, no tasks. Bounded by ``max_waiting``: beyond it a request is refused, unless somebody of a lower
priority waits, who makes room then: the last one in order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from sortedcontainers import SortedKeyList

from protocol import Rank

_Order = tuple[int, float, int]


class RoomFullError(Exception):
    """There is no room for one more; nothing changed."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One request that waits.

    Attributes:
        priority: the higher goes first.
        arrived_at: when the request came, monotonic seconds.
        deadline: until when it waits, monotonic seconds.
        takers: ranks that may take it.
        number: given on entering.
    """

    priority: int
    arrived_at: float
    deadline: float
    takers: frozenset[Rank]
    number: int = 0

    @property
    def order(self) -> _Order:
        """Its turn among all."""
        return -self.priority, self.arrived_at, self.number


_Waiter = TypeVar("_Waiter", bound=Waiter)


class _Lane(Generic[_Waiter]):
    """Those with the same takers, in order."""

    __slots__ = ("is_due", "takers", "waiters")

    def __init__(self, takers: frozenset[Rank]) -> None:
        self.takers = takers
        self.waiters: SortedKeyList[_Waiter, _Order] = SortedKeyList(key=_order)
        self.is_due = False


class WaitingRoom(Generic[_Waiter]):
    """All that wait. O(log waiters) where nothing else is said."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiters: SortedKeyList[_Waiter, _Order] = SortedKeyList(key=_order)
        self._deadlines: SortedKeyList[_Waiter, tuple[float, int]] = SortedKeyList(key=_deadline)
        self._lanes: dict[frozenset[Rank], _Lane[_Waiter]] = {}
        self._num_freed: int | None = 0  # places that may be given; None for any number
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[_Waiter]:
        """All that wait, in order."""
        return iter(self._waiters)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._waiters

    def enter(self, waiter: _Waiter) -> _Waiter | None:
        """Let one wait, whose number is set. Whoever is returned has made room for it and waits no longer.

        Raises:
            RoomFullError: the room is full, and nobody in it has a lower priority.
        """
        displaced: _Waiter | None = None
        if len(self._waiters) >= self._max_waiting:
            displaced = self._waiters[-1] if self._waiters else None
            if displaced is None or displaced.priority >= waiter.priority:
                raise RoomFullError(f"{len(self._waiters)} requests wait")
            self.leave(displaced)
        self._last_number += 1
        waiter.number = self._last_number
        self._waiters.add(waiter)
        self._deadlines.add(waiter)
        self._lane(waiter.takers).waiters.add(waiter)
        return displaced

    def leave(self, waiter: _Waiter) -> bool:
        """Forget one; False if it did not wait."""
        if waiter not in self._waiters:
            return False
        self._waiters.remove(waiter)
        self._deadlines.remove(waiter)
        self._leave_lane(waiter)
        return True

    def free(self, rank: Rank) -> None:
        """A request on the rank is over: one of those that wait for it may go. O(lanes)."""
        if self._num_freed is not None:
            self._num_freed += 1
        for lane in self._lanes.values():
            lane.is_due |= rank in lane.takers

    def free_any(self) -> None:
        """Any number may go, or none, or some have nobody left to wait for. O(lanes)."""
        self._num_freed = None
        for lane in self._lanes.values():
            lane.is_due = True

    def regroup(self, takers_of: Callable[[_Waiter], frozenset[Rank]]) -> None:
        """The workers are others: ask for each who may take it. O(waiters)."""
        self._lanes.clear()
        for waiter in self._waiters:
            waiter.takers = takers_of(waiter)
            self._lane(waiter.takers).waiters.add(waiter)

    def next(self) -> _Waiter | None:
        """Who is to be tried next; None where no more is to be tried by now. O(lanes)."""
        if self._num_freed != 0:
            heads = [lane.waiters[0] for lane in self._lanes.values() if lane.is_due]
            if heads:
                first: _Waiter = min(heads, key=_order)
                return first
        self._num_freed = 0
        for lane in self._lanes.values():
            lane.is_due = False
        return None

    def placed(self, waiter: _Waiter) -> None:
        """A rank has taken the one that was tried."""
        self.leave(waiter)
        if self._num_freed is not None:
            self._num_freed -= 1

    def stuck(self, waiter: _Waiter) -> None:
        """The one that was tried found no room: neither do those who wait for the same ranks."""
        self._lanes[waiter.takers].is_due = False

    def expire(self, now: float) -> list[_Waiter]:
        """Those whose time is over, who wait no longer."""
        expired: list[_Waiter] = []
        while self._deadlines and self._deadlines[0].deadline <= now:
            expired.append(self._deadlines[0])
            self.leave(self._deadlines[0])
        return expired

    def next_deadline(self) -> float | None:
        """When the time of the first one is over; None where nobody waits."""
        return self._deadlines[0].deadline if self._deadlines else None

    def check(self) -> None:
        """Verify that lanes, deadlines and order hold the same waiters."""
        everyone = list(self._waiters)
        assert len(everyone) <= self._max_waiting, everyone
        assert everyone == sorted(everyone, key=_order), everyone
        assert list(self._deadlines) == sorted(everyone, key=_deadline), everyone
        in_lanes = [waiter for lane in self._lanes.values() for waiter in lane.waiters]
        assert sorted(in_lanes, key=_order) == everyone, in_lanes
        for takers, lane in self._lanes.items():
            assert lane.waiters, takers
            assert all(waiter.takers == takers == lane.takers for waiter in lane.waiters), takers

    def _lane(self, takers: frozenset[Rank]) -> _Lane[_Waiter]:
        lane = self._lanes.get(takers)
        if lane is None:
            lane = self._lanes[takers] = _Lane(takers)
            lane.is_due = self._num_freed is None
        return lane

    def _leave_lane(self, waiter: _Waiter) -> None:
        lane = self._lanes[waiter.takers]
        lane.waiters.remove(waiter)
        if not lane.waiters:
            del self._lanes[waiter.takers]


def _order(waiter: Waiter) -> _Order:
    return waiter.order


def _deadline(waiter: Waiter) -> tuple[float, int]:
    return waiter.deadline, waiter.number
