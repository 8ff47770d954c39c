"""Requests that wait while workers come, go and fail: who is taken, who is told, and whose answer clients get."""

import pytest

from router.waiting_queue import QueueEnd, QueueLimits
from scoring import OutcomeKind
from tests.router.busy_worker import BODY, busy_worker, calling, depth
from tests.router.failing_workers import OK, close_at_once, code, reset_at_once
from tests.router.front_door import ask, front_door
from tests.router.stub_worker import Script, answering, response, stub_worker
from tests.router.test_queue import QUEUE


async def test_a_worker_that_joins_takes_those_who_wait() -> None:
    async with (
        busy_worker() as full,
        stub_worker(OK) as new,
        front_door(full.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
        calling(door, "waiting") as waiting,
    ):
        await depth(door, 1)
        door.brain.urls["w1"] = new.url
        door.relay.queue.workers_changed()
        answer = await waiting.answer()
        assert (answer.status, answer.values("x-kvroute-worker")) == (200, ["w1"])
        full.go_on()
        await door.settled()


async def test_where_the_last_worker_goes_who_waits_hears_it_at_once() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running") as running,
        calling(door, "one") as one,
        calling(door, "two") as two,
    ):
        await depth(door, 2)
        door.brain.urls.clear()
        door.relay.queue.workers_changed()
        for caller in (one, two):
            answer = await caller.answer()
            assert (answer.status, code(answer)) == (503, "no_worker")
            assert answer.values("retry-after") == ["1"]
        worker.go_on()
        assert (await running.answer()).status == 200
        await door.settled()
    assert door.relay.queue.ended == {QueueEnd.REFUSED: 2}


async def test_an_empty_fleet_is_503_with_a_time_and_no_queue() -> None:
    async with front_door(queue=QUEUE, capacity=1) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, code(answer)) == (503, "no_worker")
    assert answer.values("retry-after") == ["1"]
    assert not door.relay.queue.ended


async def test_an_unknown_model_does_not_wait() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
    ):
        await worker.arrived()
        answer = await ask(door, body=b'{"model":"other","messages":[]}')
        assert (answer.status, code(answer)) == (404, "model_not_found")
        worker.go_on()
        await door.settled()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("queue", [QueueLimits(), QUEUE], ids=["no_queue", "queue"])
async def test_a_workers_own_refusal_passes_through_whole(status: int, queue: QueueLimits) -> None:
    headers = (("Retry-After", "7"), ("Content-Type", "application/json"), ("X-Why", "full"))
    refusal = answering(response(b'{"error":"busy"}', status=status, headers=headers))
    async with stub_worker(refusal) as worker, front_door(worker.url, queue=queue) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, answer.body) == (status, b'{"error":"busy"}')
    assert (answer.values("retry-after"), answer.values("x-why")) == (["7"], ["full"])
    assert door.brain.kinds == [OutcomeKind.BUSY]


async def test_a_workers_own_refusal_is_passed_on_rather_than_waited_out() -> None:
    headers = (("Retry-After", "7"),)
    refusal = answering(response(b"no", status=429, headers=headers))
    async with (
        busy_worker() as full,
        stub_worker(refusal) as refusing,
        front_door(full.url, refusing.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
    ):
        await full.arrived()
        answer = await ask(door)
        assert (answer.status, answer.values("retry-after")) == (429, ["7"])
        assert not door.relay.queue.ended
        full.go_on()
        await door.settled()


async def test_after_a_fault_a_request_waits_for_the_others_with_its_old_arrival() -> None:
    async with (
        busy_worker() as full,
        busy_worker(reset_at_once) as dying,
        front_door(full.url, dying.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
        calling(door, "orphan") as orphan,
        calling(door, "later"),
    ):
        await full.arrived()
        await dying.arrived()
        await depth(door, 1)
        door.brain.capacity = 0  # the dying one takes no more
        dying.go_on()
        await depth(door, 2)
        door.brain.capacity = 1
        del door.brain.urls["w1"]
        full.go_on(3)
        assert (await orphan.answer()).status == 200
        await door.settled()
    assert full.names == ["running", "orphan", "later"]
    assert door.counters.retries == {"reset": 1}


@pytest.mark.parametrize(
    ("script", "status", "expected"),
    [
        (reset_at_once, 502, "worker_broke_off"),
        (answering(response(b'{"error":{"code":"own"}}', status=500)), 500, "own"),
    ],
)
async def test_a_fault_is_the_answer_where_waiting_after_it_is_in_vain(
    script: Script, status: int, expected: str
) -> None:
    async with (
        busy_worker() as full,
        stub_worker(script) as failing,
        front_door(full.url, failing.url, queue=QueueLimits(10, 0.05), capacity=1) as door,
        calling(door, "running"),
    ):
        await full.arrived()
        answer = await ask(door)
        assert (answer.status, code(answer)) == (status, expected)
        assert door.relay.queue.ended == {QueueEnd.EXPIRED: 1}
        full.go_on()
        await door.settled()


async def test_a_client_that_leaves_while_its_repeated_request_waits_is_forgotten() -> None:
    async with (
        busy_worker() as full,
        stub_worker(close_at_once) as failing,
        front_door(full.url, failing.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
    ):
        await full.arrived()
        async with calling(door, "orphan") as orphan:
            await depth(door, 1)
            await orphan.leave()
            await depth(door, 0)
        full.go_on()
        await door.settled()
    assert full.names == ["running"]


async def test_when_the_router_stops_who_waits_is_told() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
        calling(door, "waiting") as waiting,
    ):
        await depth(door, 1)
        for task in list(door.server.tasks):
            task.cancel()
        answer = await waiting.answer()
        assert (answer.status, code(answer)) == (503, "stopping")
        await door.settled()
    assert worker.names == ["running"]


async def test_bodies_wait_with_their_requests_and_go_on_unchanged() -> None:
    body = BODY[:-1] + b',"priority":3,"x":"' + b"y" * 100_000 + b'"}'
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
        calling(door, "waiting", [("X-Kvroute-Priority", "1")], body=body),
    ):
        await depth(door, 1)
        worker.go_on(2)
        await door.settled()
    assert worker.stub.requests[1].body == body
