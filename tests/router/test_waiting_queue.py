"""The queue around the waiting room: places are booked for whoever waits, and given back by whoever has left."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from protocol import Rank, WorkerId
from router.errors import ErrorKind, FrontDoorError
from router.lease import Lease
from router.waiting_queue import (
    QueueEnd,
    QueueLimits,
    QueueRefusal,
    Turn,
    WaitingQueue,
    is_at_capacity,
)
from scoring import NoCandidateError, Outcome, OutcomeKind, PlanRequest, TooManyRequestsError
from scoring.room_watch import together
from tests.router.front_door import Outcomes
from tests.router.stub_brain import StubBrain

W0 = Rank(WorkerId("w0"))
LIMITS = QueueLimits(max_queued=100)


@dataclass
class Scene:
    """A queue before one worker that takes one request, and what is told to both."""

    now: float = 1000.0
    brain: StubBrain = field(default_factory=lambda: StubBrain({"w0": "http://w0"}, capacity=1))
    listener: Outcomes = field(default_factory=Outcomes)
    limits: QueueLimits = LIMITS

    def __post_init__(self) -> None:
        self.queue = self.brain.watch = WaitingQueue(self.limits, lambda: self.now)

    def book(self, name: str = "r") -> Lease:
        plan = self.brain.plan(PlanRequest(name, "chat", "m", None, 0.0), self.now)
        return Lease(self.brain, plan, lambda: self.now, self.listener)

    def turn(
        self,
        name: str = "r",
        priority: int = 0,
        until: float = 1060.0,
        *,
        is_patient: bool = True,
    ) -> Turn:
        request = PlanRequest(name, "chat", "m", None, 0.0)
        return Turn(
            priority,
            self.now,
            until,
            lambda: self.brain.takers(request),
            lambda _waited_s: self.book(name),
            is_patient,
        )

    def waiting(self, name: str = "r", priority: int = 0) -> "asyncio.Task[Lease]":
        return asyncio.create_task(self.queue.wait(self.turn(name, priority)))

    def check(self) -> None:
        self.queue.check()
        assert not len(self.queue)
        self.brain.check()


async def rounds(count: int = 3) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_place_is_booked_before_whoever_waits_runs_again() -> None:
    scene = Scene()
    running = scene.book()
    waiting = scene.waiting()
    await rounds()
    running.end(Outcome(OutcomeKind.COMPLETED))
    assert not scene.brain.open
    scene.queue.dispatch()
    assert len(scene.brain.open) == 1
    assert not waiting.done()
    with await waiting:
        scene.queue.check()
    scene.check()


async def test_what_was_given_to_a_client_that_left_in_that_moment_is_given_on() -> None:
    scene = Scene()
    running = scene.book("running")
    leaving, staying = scene.waiting("leaving"), scene.waiting("staying")
    await rounds()
    running.end(Outcome(OutcomeKind.COMPLETED))
    scene.queue.dispatch()
    leaving.cancel()
    with await staying as lease:
        assert lease.plan.decision.request_id == "staying"
    assert leaving.cancelled()
    kinds = [OutcomeKind.COMPLETED, OutcomeKind.CLIENT_CLOSED, OutcomeKind.CLIENT_CLOSED]
    assert scene.brain.kinds == kinds
    scene.check()


async def test_who_leaves_in_the_moment_before_is_not_booked_for() -> None:
    scene = Scene()
    running = scene.book()
    leaving, staying = scene.waiting("leaving"), scene.waiting("staying")
    await rounds()
    leaving.cancel()
    running.end(Outcome(OutcomeKind.COMPLETED))
    scene.queue.dispatch()
    assert [plan.decision.request_id for plan in scene.brain.open.values()] in ([], ["staying"])
    with await staying:
        pass
    assert scene.queue.ended == {QueueEnd.ABANDONED: 1, QueueEnd.PLACED: 1}
    assert [one.request_id for one in scene.brain.requests] == ["r", "staying"]
    scene.check()


@pytest.mark.parametrize("error", [TooManyRequestsError("full"), RuntimeError("a bug")])
async def test_what_planning_raises_reaches_the_request_and_holds_up_nobody(
    error: Exception,
) -> None:
    scene = Scene()
    running = scene.book()
    unlucky = scene.waiting()
    await rounds()
    scene.brain.fault = error
    running.end(Outcome(OutcomeKind.COMPLETED))
    with pytest.raises(type(error)):
        await unlucky
    scene.brain.fault = None
    with scene.book():
        following = scene.waiting()
        await rounds()
    with await following:
        pass
    assert scene.queue.ended == {QueueEnd.REFUSED: 1, QueueEnd.PLACED: 1}
    scene.check()


async def test_many_places_are_given_in_turns_of_the_event_loop() -> None:
    scene = Scene()
    running = scene.book()
    tasks = [scene.waiting(str(index)) for index in range(40)]
    await rounds()
    scene.brain.capacity = None
    scene.queue.marks_changed()
    scene.queue.dispatch()
    assert 1 < len(scene.brain.open) < 40
    leases = [await task for task in tasks]
    assert [lease.plan.decision.request_id for lease in leases] == [str(i) for i in range(40)]
    for lease in [running, *leases]:
        lease.end(Outcome(OutcomeKind.COMPLETED))
    scene.check()


@pytest.mark.parametrize(
    ("limits", "until", "kind", "reason"),
    [
        (QueueLimits(), 1060.0, ErrorKind.AT_CAPACITY, QueueRefusal.NO_QUEUE),
        (LIMITS, 1000.0, ErrorKind.AT_CAPACITY, QueueRefusal.NO_TIME),
        (LIMITS, 999.0, ErrorKind.QUEUE_TIMEOUT, QueueRefusal.TIME_OVER),
        (QueueLimits(max_queued=1), 1060.0, ErrorKind.QUEUE_FULL, QueueRefusal.FULL),
    ],
)
async def test_who_may_not_wait_is_told_why(
    limits: QueueLimits, until: float, kind: ErrorKind, reason: QueueRefusal
) -> None:
    scene = Scene(limits=limits)
    running = scene.book()
    others = [scene.waiting()] if limits.max_queued == 1 else []
    await rounds()
    with pytest.raises(FrontDoorError) as refusal:
        await scene.queue.wait(
            scene.turn(until=until, is_patient=reason is not QueueRefusal.NO_TIME)
        )
    assert (refusal.value.kind, refusal.value.status) == (kind, 429)
    assert scene.queue.refused == {reason: 1}
    for other in others:
        other.cancel()
    running.end(Outcome(OutcomeKind.COMPLETED))
    await rounds()
    scene.check()


async def test_time_is_over_for_those_alone_whose_time_it_is() -> None:
    scene = Scene()
    running = scene.book()
    soon = asyncio.create_task(scene.queue.wait(scene.turn(until=1000.01)))
    later = scene.waiting()
    await rounds()
    scene.now = 1000.02
    with pytest.raises(FrontDoorError) as refusal:
        await soon
    assert refusal.value.kind is ErrorKind.QUEUE_TIMEOUT
    scene.queue.check()
    running.end(Outcome(OutcomeKind.COMPLETED))
    with await later:
        pass
    scene.check()


@pytest.mark.parametrize(
    "tell",
    [
        lambda queue: queue.rank_freed(W0),
        lambda queue: queue.marks_changed(),
        lambda queue: queue.workers_changed(),
    ],
)
def test_where_nobody_waits_nothing_is_done_and_no_loop_is_needed(
    tell: Callable[[WaitingQueue], None],
) -> None:
    queue = WaitingQueue(LIMITS)
    tell(queue)
    assert not queue.is_due
    queue.dispatch()
    queue.check()


async def test_what_is_told_in_one_go_is_acted_upon_once() -> None:
    scene = Scene()
    running = scene.book()
    waiting = scene.waiting()
    await rounds()
    num_asked = len(scene.brain.requests)
    for _ in range(5):
        scene.queue.marks_changed()
    await rounds()
    assert len(scene.brain.requests) == num_asked + 1
    running.end(Outcome(OutcomeKind.COMPLETED))
    with await waiting:
        pass
    scene.check()


async def test_what_tries_change_and_undo_makes_nobody_try_again() -> None:
    """As the trial of a worker whose breaker is open does."""
    scene = Scene()
    running = scene.book()

    def book(_waited_s: float) -> Lease:
        scene.queue.marks_changed()
        return scene.book()

    turns = [
        Turn(0, scene.now, 1060.0, partial(frozenset, [rank]), book)
        for rank in (W0, Rank(WorkerId("w1")))
    ]
    waiting = [asyncio.create_task(scene.queue.wait(turn)) for turn in turns]
    await rounds()
    num_asked = len(scene.brain.requests)
    scene.queue.marks_changed()
    await rounds(20)
    assert len(scene.brain.requests) == num_asked + 2
    for task in waiting:
        task.cancel()
    running.end(Outcome(OutcomeKind.COMPLETED))
    await rounds()
    scene.check()


@pytest.mark.parametrize("seed", range(4))
async def test_any_mix_of_ends_leaves_nothing_behind(seed: int) -> None:
    """Clients that come, hang up at any moment or lose patience, and a rank that is now and then taken away."""
    rng = Random(seed)
    scene = Scene(limits=QueueLimits(max_queued=12))
    scene.brain.capacity = 2
    served: list[str] = []

    async def client(name: str) -> None:
        scene.queue.dispatch()
        try:
            lease = scene.book(name)
        except NoCandidateError as error:
            if not is_at_capacity(error.decision):
                return
            until = scene.now + rng.choice([0.0, 0.003, 60.0])
            lease = await scene.queue.wait(scene.turn(name, rng.randrange(3), until))
        with lease:
            await rounds(rng.randrange(1, 10))
            served.append(name)
            lease.end(Outcome(OutcomeKind.COMPLETED))

    tasks: list[asyncio.Task[None]] = []
    for index in range(400):
        tasks.append(asyncio.create_task(client(str(index))))
        match rng.randrange(8):
            case 0:
                tasks[rng.randrange(len(tasks))].cancel()
            case 1:
                scene.brain.urls = {} if scene.brain.urls else {"w0": "http://w0"}
                scene.queue.workers_changed()
            case 2:
                await asyncio.sleep(0.0005)
        scene.now += 0.0005
        await rounds(1)
        scene.queue.check()
    scene.brain.urls = {"w0": "http://w0"}
    scene.queue.workers_changed()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = (NoCandidateError, FrontDoorError, asyncio.CancelledError)
    assert all(result is None or isinstance(result, refused) for result in results)
    assert len(served) > 50
    scene.check()
    waits = sum(scene.queue.ended.values())
    assert waits > 20
    assert scene.brain.kinds.count(OutcomeKind.COMPLETED) == len(served)


async def test_two_relays_that_share_a_brain_lose_no_room() -> None:
    one, other = Scene(), Scene()
    other.brain, other.queue = one.brain, WaitingQueue(LIMITS, lambda: one.now)
    one.brain.watch = together([one.queue, other.queue])
    running = one.book()
    tasks = [scene.waiting(str(index)) for index in range(4) for scene in (one, other)]
    await rounds()
    for _ in tasks:
        running.end(Outcome(OutcomeKind.COMPLETED))
        done, _ = await asyncio.wait(tasks, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1, "one place is given to one"
        running = done.pop().result()
        tasks = [task for task in tasks if not task.done()]
        await rounds()
    running.end(Outcome(OutcomeKind.COMPLETED))
    await rounds()
    one.check()
    other.check()
