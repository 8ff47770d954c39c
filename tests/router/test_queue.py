"""Requests before workers that are full, on real sockets: who waits, in which order, how long, and what clients get."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from router.client_keys import ClientKeys
from router.priority import PriorityRight
from router.waiting_queue import QueueEnd, QueueLimits, QueueRefusal
from scoring import OutcomeKind
from tests.router.busy_worker import busy_worker, calling, depth
from tests.router.failing_workers import OK, close_after_headers, close_at_once, code, reset_at_once
from tests.router.front_door import WireAnswer, ask, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    Script,
    answering,
    chunk,
    response,
    stub_worker,
)
from tests.router.test_client_keys import entry

FREE = PriorityRight(0, 100)
QUEUE = QueueLimits(max_queued=10, priority=FREE)


def check_refused(answer: WireAnswer, expected: str) -> None:
    """A 429 that says why, and when to come again, in the form that OpenAI's clients read."""
    assert (answer.status, code(answer)) == (429, expected)
    assert int(answer.values("retry-after")[0]) >= 1
    error = json.loads(answer.body)["error"]
    assert error["type"] == "rate_limit_error"
    assert error["message"]


async def test_a_request_waits_for_room_and_is_served() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "first") as first,
        calling(door, "second") as second,
    ):
        await depth(door, 1)
        worker.go_on()
        assert (await first.answer()).status == 200
        worker.go_on()
        assert (await second.answer()).status == 200
        await door.settled()
    assert worker.names == ["first", "second"]
    assert door.relay.queue.ended == {QueueEnd.PLACED: 1}
    assert door.brain.requests[-1].timing_us["wait"] > 0
    assert sum(door.relay.queue.wait_s.counts) == 1


@pytest.mark.parametrize("by_reset", [False, True])
async def test_clients_that_leave_while_they_wait_are_never_dispatched(by_reset: bool) -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        AsyncExitStack() as stack,
    ):
        names = ["running", "one", "two", "three", "four", "survivor"]
        callers = [await stack.enter_async_context(calling(door, name)) for name in names]
        await depth(door, 5)
        for caller in callers[1:5]:
            await caller.leave(by_reset=by_reset)
        await depth(door, 1)
        worker.go_on(2)
        assert (await callers[0].answer()).status == 200
        assert (await callers[5].answer()).status == 200
        await door.settled()
    assert worker.names == ["running", "survivor"]
    assert door.relay.queue.ended == {QueueEnd.ABANDONED: 4, QueueEnd.PLACED: 1}
    assert door.brain.kinds == [OutcomeKind.COMPLETED] * 2
    assert door.counters.requests["chat", "closed"] == 4


async def test_a_full_queue_refuses_with_429_and_a_time() -> None:
    limits = QueueLimits(max_queued=2)
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=limits, capacity=1) as door,
        calling(door, "running") as running,
        calling(door, "one") as one,
        calling(door, "two") as two,
    ):
        await depth(door, 2)
        for _ in range(2):
            check_refused(await ask(door), "queue_full")
        worker.go_on(3)
        answers = [await caller.answer() for caller in (running, one, two)]
        await door.settled()
    assert [answer.status for answer in answers] == [200] * 3
    assert worker.names == ["running", "one", "two"]
    assert door.relay.queue.refused == {QueueRefusal.FULL: 2}


async def test_without_a_queue_a_full_fleet_refuses_at_once() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, capacity=1) as door,
        calling(door, "running") as running,
    ):
        await worker.arrived()
        check_refused(await ask(door), "at_capacity")
        worker.go_on()
        assert (await running.answer()).status == 200
        await door.settled()
    assert door.relay.queue.refused == {QueueRefusal.NO_QUEUE: 1}


@pytest.mark.parametrize(
    ("timeout_s", "header"), [(0.05, None), (30.0, "0.05"), (0.05, "3600"), (0.05, "soon")]
)
async def test_who_waits_too_long_while_workers_exist_gets_429_with_a_reason(
    timeout_s: float, header: str | None
) -> None:
    headers = [] if header is None else [("X-Kvroute-Queue-Timeout", header)]
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QueueLimits(10, timeout_s), capacity=1) as door,
        calling(door, "running") as running,
        calling(door, "late", headers) as late,
    ):
        check_refused(await late.answer(), "queue_timeout")
        worker.go_on()
        assert (await running.answer()).status == 200
        await door.settled()
    assert worker.names == ["running"]
    assert door.relay.queue.ended == {QueueEnd.EXPIRED: 1}


async def test_a_request_may_ask_not_to_wait() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
    ):
        await worker.arrived()
        check_refused(await ask(door, headers=[("x-kvroute-queue-timeout", "0")]), "at_capacity")
        assert door.relay.queue.refused == {QueueRefusal.NO_TIME: 1}


async def test_the_higher_priority_goes_first_and_equals_as_they_came() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        AsyncExitStack() as stack,
    ):
        asked = [
            ("running", ""),
            ("low", "-5"),
            ("a", ""),
            ("b", "no number"),
            ("urgent", "7"),
            ("c", "0"),
        ]
        for index, (name, priority) in enumerate(asked):
            headers = [("X-Kvroute-Priority", priority)] if priority else []
            await stack.enter_async_context(calling(door, name, headers))
            await depth(door, index)
        worker.go_on(len(asked))
        await door.settled()
    assert worker.names == ["running", "urgent", "a", "b", "c", "low"]


async def test_a_client_outranks_others_only_as_far_as_its_key_allows() -> None:
    keys = ClientKeys(
        [
            entry("plain"),
            entry("batch", priority=-10),
            entry("may", max_priority=5),
            entry("gold", priority=3),
        ]
    )
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1, keys=keys) as door,
        AsyncExitStack() as stack,
    ):
        asked = [
            ("plain", "running", "0"),
            ("batch", "batch", "100"),
            ("plain", "plain", "100"),
            ("gold", "gold", "4"),
            ("may", "usual", ""),
            ("may", "named", "9"),
        ]
        for index, (key, name, priority) in enumerate(asked):
            headers = [("Authorization", f"Bearer key-{key}")]
            headers += [("X-Kvroute-Priority", priority)] if priority else []
            await stack.enter_async_context(calling(door, name, headers))
            await depth(door, index)
        worker.go_on(len(asked))
        await door.settled()
    assert worker.names == ["running", "named", "gold", "plain", "usual", "batch"]


async def test_in_a_full_queue_a_higher_priority_takes_the_last_place() -> None:
    limits = QueueLimits(max_queued=2, priority=FREE)
    urgent = [("X-Kvroute-Priority", "1")]
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=limits, capacity=1) as door,
        calling(door, "running"),
        calling(door, "one"),
        calling(door, "two") as two,
        calling(door, "urgent", urgent),
    ):
        check_refused(await two.answer(), "queue_displaced")
        worker.go_on(3)
        await door.settled()
    assert worker.names == ["running", "urgent", "one"]
    assert door.relay.queue.ended == {QueueEnd.DISPLACED: 1, QueueEnd.PLACED: 2}


@pytest.mark.parametrize("target", ["/v1/embeddings", "/flush_cache", "/v1/some/thing?a=1"])
async def test_requests_on_other_paths_count_and_wait_like_all(target: str) -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "other", target=target, body=b"{}"),
    ):
        await worker.arrived()
        async with calling(door, "chat"):
            await depth(door, 1)
            async with calling(door, "other again", target=target, body=b"{}"):
                await depth(door, 2)
                worker.go_on(3)
                await door.settled()
    assert worker.names == ["other", "chat", "other again"]


async def test_a_stream_holds_its_place_to_its_end() -> None:
    released = asyncio.Event()

    async def stream(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'))
        await released.wait()
        await peer.send(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)

    async with (
        stub_worker(stream) as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "first") as first,
    ):
        while not sum(door.brain.first_bytes.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        async with calling(door, "second") as second:
            await depth(door, 1)
            assert len(worker.requests) == 1
            released.set()
            assert (await first.answer()).is_whole
            assert (await second.answer()).is_whole
        await door.settled()


@pytest.mark.parametrize("by_reset", [False, True])
async def test_the_place_of_a_client_that_leaves_its_stream_is_given_on(by_reset: bool) -> None:
    async def endless(peer: Peer) -> None:
        name = peer.request.values("x-name")[0]
        if name != "leaving":
            await OK(peer)
            return
        await peer.send(SSE_HEAD + chunk(b"data: {}\n\n"))
        await peer.gone()
        raise ConnectionResetError

    async with (
        stub_worker(endless) as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "leaving") as leaving,
    ):
        await worker.arrived.acquire()
        async with calling(door, "next") as following:
            await depth(door, 1)
            await leaving.leave(by_reset=by_reset)
            assert (await following.answer()).status == 200
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_CLOSED, OutcomeKind.COMPLETED]


@pytest.mark.parametrize(
    "script", [close_at_once, reset_at_once, close_after_headers, answering(response(status=500))]
)
async def test_whatever_ends_a_request_gives_its_place_on(script: Script) -> None:
    async def first_fails(peer: Peer) -> None:
        await (script if peer.request.values("x-name") == ["first"] else OK)(peer)

    async with (
        busy_worker(first_fails) as worker,
        front_door(worker.url, queue=QUEUE, capacity=1, max_attempts=1) as door,
        calling(door, "first"),
        calling(door, "second") as second,
    ):
        await depth(door, 1)
        worker.go_on(3)
        assert (await second.answer()).status == 200
        await door.settled()
    assert worker.names[-1] == "second"


async def test_a_place_serves_one_of_those_who_wait_and_wakes_no_other() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=2) as door,
        AsyncExitStack() as stack,
    ):
        for index in range(8):
            await stack.enter_async_context(calling(door, str(index)))
        await depth(door, 6)
        num_asked = len(door.brain.requests)
        worker.go_on()
        await depth(door, 5)
        assert len(door.brain.requests) == num_asked + 1
        worker.go_on(7)
        await door.settled()
    assert worker.names == [str(index) for index in range(8)]


async def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    async with (
        busy_worker() as worker,
        front_door(worker.url, queue=QUEUE, capacity=1) as door,
        calling(door, "running"),
        calling(door, "waiting"),
    ):
        await depth(door, 1)
        plan = next(iter(door.brain.open.values()))
        door.relay.queue.rank_freed(plan.rank)  # tried in vain, for the rank is full still
        async with calling(door, "newcomer"):
            await depth(door, 2)
            worker.go_on(3)
            await door.settled()
    assert worker.names == ["running", "waiting", "newcomer"]
