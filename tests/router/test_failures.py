"""Workers that fail before they answer: who is asked next, and what the client gets."""

import asyncio

import pytest

from scoring import OutcomeKind, TooManyRequestsError
from tests.router.failing_workers import (
    MALFORMED,
    OK,
    close_after_headers,
    close_at_once,
    code,
    reset_at_once,
    reset_within_length,
)
from tests.router.front_door import FrontDoor, ask, front_door
from tests.router.stub_worker import Peer, Script, answering, response, stub_worker

NOBODY = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.mark.parametrize("script", [close_at_once, reset_at_once, *MALFORMED])
async def test_a_worker_that_never_answers_is_followed_by_another(script: Script) -> None:
    async with (
        stub_worker(script) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url) as door,
    ):
        answer = await ask(door)
        await door.settled()
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert answer.values("x-kvroute-worker") == ["w1"]
    assert door.brain.kinds[-1] is OutcomeKind.COMPLETED
    assert len(door.brain.kinds) == 2
    assert door.brain.requests[1].excluded == {door.brain.outcomes[0][0]}


async def test_a_refused_connection_is_followed_by_another() -> None:
    async with stub_worker(OK) as good, front_door(NOBODY, good.url) as door:
        answer = await ask(door)
        await door.settled()
    assert answer.status == 200
    assert door.brain.kinds == [OutcomeKind.CONNECT_FAILED, OutcomeKind.COMPLETED]
    assert door.counters.retries == {"connect": 1}


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (close_at_once, 502, "worker_broke_off"),
        (reset_at_once, 502, "worker_broke_off"),
        *((script, 502, "worker_broke_off") for script in MALFORMED),
    ],
)
async def test_alone_it_fails_with_a_body_that_clients_can_read(
    script: Script, status: int, error: str
) -> None:
    async with stub_worker(script) as bad, front_door(bad.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, code(answer)) == (status, error)
    kind = OutcomeKind.WORKER_ERROR if script in MALFORMED else OutcomeKind.BROKEN_OFF
    assert door.brain.kinds == [kind]
    assert not door.counters.internal_errors


async def test_nobody_reachable_is_502_with_retry_after() -> None:
    async with front_door(NOBODY, NOBODY) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, code(answer)) == (502, "worker_unreachable")
    assert answer.values("retry-after") == ["1"]
    assert door.brain.kinds == [OutcomeKind.CONNECT_FAILED] * 2


async def test_a_request_that_two_workers_died_of_goes_to_no_third() -> None:
    async with (
        stub_worker(reset_at_once) as one,
        stub_worker(close_at_once) as two,
        stub_worker(OK) as three,
        front_door(one.url, two.url, three.url) as door,
    ):
        answer = await ask(door)
        await door.settled()
    assert (answer.status, code(answer)) == (502, "worker_broke_off")
    assert door.brain.kinds == [OutcomeKind.BROKEN_OFF] * 2
    assert not three.requests


async def test_a_worker_that_is_gone_has_died_of_nothing() -> None:
    async with (
        stub_worker(reset_at_once) as one,
        stub_worker(OK) as three,
        front_door(one.url, NOBODY, three.url) as door,
    ):
        assert (await ask(door)).status == 200
        await door.settled()


async def test_attempts_are_bounded() -> None:
    async with front_door(*[NOBODY] * 5, max_attempts=3) as door:
        assert (await ask(door)).status == 502
        await door.settled()
    assert len(door.brain.kinds) == 3


async def test_the_other_ranks_of_a_dead_worker_are_not_tried() -> None:
    async with stub_worker(OK) as good, front_door(NOBODY, good.url, dp_ranks=range(4)) as door:
        assert (await ask(door)).status == 200
        await door.settled()
    assert [rank.worker for rank, _ in door.brain.outcomes] == ["w0", "w1"]


async def test_a_connection_closed_while_idle_is_opened_again_where_there_is_nobody_else() -> None:
    """The worker closes after its first answer, just as the second request comes."""

    async def script(peer: Peer) -> None:
        if len(worker.requests) == 2:
            peer.close()
        else:
            await peer.send(response(b"{}"))

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        assert (await ask(door)).status == 200
        assert (await ask(door)).status == 200
        await door.settled()
    completed, stale = OutcomeKind.COMPLETED, OutcomeKind.STALE
    assert door.brain.kinds == [completed, stale, completed]
    assert door.counters.retries == {"fresh_connection": 1}
    assert worker.num_accepts == 2


COMPUTING = (
    *("/v1/embeddings", "/v2/embed", "/encode", "/score", "/v1/score", "/rerank", "/v2/rerank"),
    *("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech"),
    "/v1/chat/completions/batch",
)


@pytest.mark.parametrize(("path", "num_sent"), [("/files", 1), *((path, 2) for path in COMPUTING)])
async def test_what_may_change_something_is_not_sent_twice(path: str, num_sent: int) -> None:
    async with (
        stub_worker(close_at_once) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url) as door,
    ):
        await ask(door, "POST", path)
        await door.settled()
    assert len(bad.requests) + len(good.requests) == num_sent


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
async def test_a_reused_connection_that_breaks_delivers_once(method: str) -> None:
    async def script(peer: Peer) -> None:
        if peer.request.target == "/change":
            peer.close()
        else:
            await peer.send(response(b"{}"))

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        assert (await ask(door, "GET", "/first", body=None)).status == 200
        assert (await ask(door, method, "/change")).status == 502
        await door.settled()
    assert worker.num_accepts == 1
    assert [request.target for request in worker.requests] == ["/first", "/change"]


async def test_what_was_never_sent_may_be_sent() -> None:
    async with stub_worker(OK) as good, front_door(NOBODY, good.url) as door:
        assert (await ask(door, "POST", "/files")).status == 200
        await door.settled()


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_a_5xx_is_tried_elsewhere(status: int) -> None:
    async with (
        stub_worker(answering(response(b"{}", status=status))) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url) as door,
    ):
        assert (await ask(door)).status == 200
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.WORKER_ERROR, OutcomeKind.COMPLETED]


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_with_nobody_else_the_workers_own_answer_passes(status: int) -> None:
    data = response(b'{"detail":"mine"}', status=status, headers=(("Retry-After", "7"),))
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, answer.body) == (status, b'{"detail":"mine"}')
    assert answer.values("retry-after") == ["7"]
    expected = OutcomeKind.WORKER_ERROR if status == 500 else OutcomeKind.BUSY
    assert door.brain.kinds == [expected]


async def test_busy_workers_are_asked_twice_and_no_more() -> None:
    busy = answering(response(b"{}", status=429))
    async with (
        stub_worker(busy) as one,
        stub_worker(busy) as two,
        stub_worker(busy) as three,
        front_door(one.url, two.url, three.url) as door,
    ):
        assert (await ask(door)).status == 429
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.BUSY] * 2
    assert door.counters.retries == {"busy": 1}


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_4xx_is_the_clients_and_passes(status: int) -> None:
    data = response(b'{"error":{}}', status=status)
    async with (
        stub_worker(answering(data)) as one,
        stub_worker(OK) as two,
        front_door(one.url, two.url) as door,
    ):
        assert (await ask(door)).status == status
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.CLIENT_ERROR]


@pytest.mark.parametrize(
    "script", [close_at_once, reset_at_once, close_after_headers, reset_within_length]
)
async def test_many_failures_leave_nothing_booked(script: Script) -> None:
    async def one(door: FrontDoor) -> int:
        return (await ask(door)).status

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        await asyncio.gather(*(one(door) for _ in range(50)))
        await door.settled()
    assert len(door.brain.kinds) == 50
    assert sum(door.counters.requests.values()) == 50


async def test_a_fault_of_the_router_is_500_and_the_next_request_is_served() -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        door.brain.fault = ZeroDivisionError("in the brain")
        broken = await ask(door)
        door.brain.fault = None
        assert (await ask(door)).status == 200
        await door.settled()
    assert (broken.status, code(broken)) == (500, "internal_error")
    assert b"ZeroDivision" not in broken.body
    assert door.counters.internal_errors == 1


async def test_a_full_brain_is_429() -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        door.brain.fault = TooManyRequestsError("full")
        answer = await ask(door)
        await door.settled()
    assert (answer.status, answer.values("retry-after")) == (429, ["1"])
