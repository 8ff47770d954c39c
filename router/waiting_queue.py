"""Requests wait here for room on a rank: the tasks and the clock around the `waiting_room`.

    exchange ─ wait ─▶ room ◀─ rank freed, workers changed ─ planner
                 ▲       │ next
                 └ lease ┴─▶ its plan is made afresh, and booked for it

A place is given by booking it: the lease of whoever has its turn is made before its task runs again, so that no
newcomer takes the place in between, and nobody is woken in vain. What the planner tells is acted upon in the next
round of the event loop, or when a newcomer is about to plan, whichever is sooner. Whoever leaves, for whatever
reason, leaves at once, and a lease that it was given in the same moment is ended.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from protocol import Rank
from router.counters import TTFT_BUCKETS_S, Histogram
from router.errors import ErrorKind, FrontDoorError
from router.lease import Lease
from router.priority import PriorityRight
from router.waiting_room import RoomFullError, Waiter, WaitingRoom
from scoring.brain import NoCandidateError, Outcome, OutcomeKind
from scoring.decision import Decision, Exclusion

_TRIES_PER_TURN = 16
"""Requests that are planned in one go before the event loop does other things."""
_TIMER_GRAIN_S = 0.001
"""Loops count in milliseconds; a timer that rings just before its time would find nothing to do."""


class QueueEnd(StrEnum):
    """How a wait ended."""

    PLACED = "placed"  # on a rank
    EXPIRED = "expired"
    ABANDONED = "abandoned"  # its client left, or the router stopped
    DISPLACED = "displaced"  # by one of a higher priority
    REFUSED = "refused"  # nobody is left who could take it


class QueueRefusal(StrEnum):
    """Why a request that found no room did not wait."""

    NO_QUEUE = "no_queue"
    NO_TIME = "no_time"  # it asked not to
    TIME_OVER = "time_over"  # an earlier wait, before a fault, was as long as it may wait in all
    FULL = "full"


_REFUSALS = {
    QueueRefusal.NO_QUEUE: (ErrorKind.AT_CAPACITY, "every worker that could serve this is full"),
    QueueRefusal.NO_TIME: (ErrorKind.AT_CAPACITY, "every worker that could serve this is full"),
    QueueRefusal.TIME_OVER: (
        ErrorKind.QUEUE_TIMEOUT,
        "every worker that could serve this is full again, and it has waited for as long as it may",
    ),
    QueueRefusal.FULL: (ErrorKind.QUEUE_FULL, "every worker is full, and so is the queue for them"),
}


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Of the queue and of each that waits.

    Attributes:
        max_queued: requests that wait; with 0 nobody does.
        timeout_s: that one waits at most.
        priority: of requests that come without a key.
    """

    max_queued: int = 0
    timeout_s: float = 30.0
    priority: PriorityRight = field(default_factory=PriorityRight)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a request asks of the queue.

    Attributes:
        until: when it gives up, monotonic seconds.
        takers: the ranks that may take it; asked again when the workers are others.
        book: plans it afresh, told how many seconds it has waited; raises what planning raises.
        is_patient: it may wait at all; where not, that is why ``until`` is over.
    """

    priority: int
    arrived_at: float
    until: float
    takers: Callable[[], frozenset[Rank]]
    book: Callable[[float], Lease]
    is_patient: bool = True


@dataclass(slots=True, eq=False, kw_only=True)
class _Place(Waiter):
    turn: Turn
    since: float
    future: asyncio.Future[Lease]


class WaitingQueue:
    """One queue for the whole fleet. It is the planner's `RoomWatch`.

    Attributes:
        is_waited_for: somebody waits.
        is_due: somebody may have a place, and has not been tried.
        ended: waits, by how they ended.
        refused: requests that found no room and did not wait, by why.
        wait_s: of those that were placed.
    """

    def __init__(
        self, limits: QueueLimits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or QueueLimits()
        self.is_waited_for = False
        self.is_due = False
        self.ended: Counter[QueueEnd] = Counter()
        self.refused: Counter[QueueRefusal] = Counter()
        self.wait_s = Histogram(TTFT_BUCKETS_S)
        self._clock = clock
        self._room: WaitingRoom[_Place] = WaitingRoom(self.limits.max_queued)
        self._has_other_workers = False
        self._is_trying = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._room)

    # -- the relay's side --------------------------------------------------------------------------

    async def wait(self, turn: Turn) -> Lease:
        """Wait for a place. Whoever gets the lease ends it.

        Raises:
            FrontDoorError: there is no queue, it is full, or the time is over.
            NoCandidateError: nobody is left who could take the request.
            TooManyRequestsError: the brain is full.
        """
        place = self._enter(turn)
        try:
            return await place.future
        except asyncio.CancelledError:
            self._abandon(place)
            raise
        finally:
            del place  # it keeps what was raised, which keeps this frame

    def dispatch(self) -> None:
        """Give away what room there may be, in order; the rest follows in the next turn of the event loop."""
        if not self.is_due:
            return
        self.is_due = False
        if self._has_other_workers:
            self._has_other_workers = False
            self._room.regroup(lambda place: place.turn.takers())
        for _ in range(_TRIES_PER_TURN):
            place = self._room.next()
            if place is None:
                break
            self._try(place)
        else:
            self._wake()
        self.is_waited_for = len(self._room) > 0

    # -- the planner's side ------------------------------------------------------------------------

    def rank_freed(self, rank: Rank) -> None:
        """A request on the rank is over."""
        if self.is_waited_for:
            self._room.free(rank)
            self._wake()

    def marks_changed(self) -> None:
        """A worker may be chosen that could not be, or the other way round. What a try changes itself, it undoes."""
        if self.is_waited_for and not self._is_trying:
            self._room.free_any()
            self._wake()

    def workers_changed(self) -> None:
        """A worker came, went, or is described anew."""
        self._has_other_workers = self.is_waited_for
        self.marks_changed()

    def check(self) -> None:
        """Verify that everybody in the room waits, and will be told of its time."""
        self._room.check()
        assert self.is_waited_for is (len(self._room) > 0), len(self._room)
        assert all(not place.future.done() or place.future.cancelled() for place in self._room)
        assert not len(self._room) or self._timer is not None

    # -- inside ------------------------------------------------------------------------------------

    def _enter(self, turn: Turn) -> _Place:
        """Let a request wait.

        Raises:
            FrontDoorError: it may not.
        """
        now = self._clock()
        if not self.limits.max_queued:
            raise self._refusal(QueueRefusal.NO_QUEUE)
        if turn.until <= now:
            why = QueueRefusal.TIME_OVER if turn.is_patient else QueueRefusal.NO_TIME
            raise self._refusal(why)
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        place = _Place(
            turn.priority,
            turn.arrived_at,
            turn.until,
            turn.takers(),
            turn=turn,
            since=now,
            future=future,
        )
        try:
            displaced = self._room.enter(place)
        except RoomFullError as error:
            raise self._refusal(QueueRefusal.FULL) from error
        if displaced is not None:
            message = "a request of a higher priority took this one's place in the queue"
            refusal = FrontDoorError(ErrorKind.QUEUE_DISPLACED, message)
            self._end(displaced, QueueEnd.DISPLACED, refusal)
        self.is_waited_for = True
        self._arm()
        return place

    def _refusal(self, reason: QueueRefusal) -> FrontDoorError:
        self.refused[reason] += 1
        return FrontDoorError(*_REFUSALS[reason])

    def _try(self, place: _Place) -> None:
        """Give the one whose turn it is a place, if there is one for it."""
        if place.future.done():  # its client left a moment ago
            self._room.leave(place)
            return
        waited_s = self._clock() - place.since
        self._is_trying = True
        try:
            lease = place.turn.book(waited_s)
        except NoCandidateError as error:
            if is_at_capacity(error.decision):
                self._room.stuck(place)
            else:
                self._end(place, QueueEnd.REFUSED, error)
        except Exception as error:  # noqa: BLE001  its own request answers for it
            self._end(place, QueueEnd.REFUSED, error)
        else:
            self._room.placed(place)
            self.ended[QueueEnd.PLACED] += 1
            self.wait_s.observe(waited_s)
            place.future.set_result(lease)
        finally:
            self._is_trying = False
            del place  # it keeps what was raised, which keeps this frame

    def _end(self, place: _Place, how: QueueEnd, error: Exception) -> None:
        """It waits no longer, and has no place."""
        self._room.leave(place)
        if not place.future.done():
            self.ended[how] += 1
            place.future.set_exception(error)

    def _abandon(self, place: _Place) -> None:
        """Nobody waits for this place any longer; what it was given in the same moment is given back."""
        self._room.leave(place)
        self.is_waited_for = len(self._room) > 0
        future = place.future
        if future.cancelled():
            self.ended[QueueEnd.ABANDONED] += 1
        elif future.exception() is None:
            future.result().end(Outcome(OutcomeKind.CLIENT_CLOSED))

    def _wake(self) -> None:
        if not self.is_due:
            self.is_due = True
            asyncio.get_running_loop().call_soon(self.dispatch)

    def _arm(self) -> None:
        """Be told when the first deadline is over; a timer that comes too soon is set again."""
        deadline = self._room.next_deadline()
        if deadline is None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + max(deadline - self._clock(), 0.0)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at + _TIMER_GRAIN_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        message = "every worker that could serve this was full for as long as the request may wait"
        for place in self._room.expire(self._clock()):
            self._end(place, QueueEnd.EXPIRED, FrontDoorError(ErrorKind.QUEUE_TIMEOUT, message))
        self.is_waited_for = len(self._room) > 0
        self._arm()


def is_at_capacity(decision: Decision) -> bool:
    """Would a rank take the request, had it room?"""
    return Exclusion.AT_CAPACITY in decision.excluded
