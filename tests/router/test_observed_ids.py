"""Ids of requests: one for all that deal with a request, the client's own where it is fit to be passed on."""

import pytest

from router.headers import MAX_REQUEST_ID
from tests.router.failing_workers import OK, reset_at_once
from tests.router.front_door import ask, connect, front_door
from tests.router.records import KeptRecords
from tests.router.stub_worker import stub_worker

CHAT = b'{"model":"m","messages":[],"stream":true}'


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        ([], False),
        ([""], False),
        (["abc-1"], True),
        (["a" * MAX_REQUEST_ID], True),
        (["a" * (MAX_REQUEST_ID + 1)], False),
        (["a" * 60_000], False),
        (["a b"], False),
        (["a\tb"], False),
        (["\xe9"], False),
        (["one", "two"], True),
        (["one", "t w o"], False),
    ],
)
@pytest.mark.parametrize("is_observed", [True, False])
async def test_one_id_for_the_client_the_worker_the_brain_and_the_record(
    sent: list[str], is_kept: bool, is_observed: bool
) -> None:
    kept = KeptRecords()
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url, observers=[kept] if is_observed else []) as door,
    ):
        answer = await ask(door, headers=[("x-request-id", one) for one in sent])
        await door.settled()
    (request_id,) = answer.values("x-request-id")
    assert worker.requests[0].values("x-request-id") == [request_id]
    assert [one.request_id for one in door.brain.requests] == [request_id]
    assert [one.request_id for one in kept.ended_records] == [request_id] * is_observed
    assert (request_id in sent) is is_kept
    assert 0 < len(request_id) <= MAX_REQUEST_ID


async def test_one_id_each_for_requests_whose_heads_are_alike() -> None:
    kept = KeptRecords()
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url, observers=[kept]) as door,
        connect(door.port) as client,
    ):
        answered = []
        for _ in range(3):
            await client.send("POST", "/v1/chat/completions", body=CHAT)
            answered += (await client.answer()).values("x-request-id")
        await door.settled()
    assert len(set(answered)) == 3
    assert [one.values("x-request-id") for one in worker.requests] == [[one] for one in answered]
    assert [one.request_id for one in kept.ended_records] == answered


async def test_one_id_for_all_attempts() -> None:
    kept = KeptRecords()
    async with (
        stub_worker(reset_at_once) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url, observers=[kept]) as door,
    ):
        answer = await ask(door)
        record = await kept.only()
    ids = {one.values("x-request-id")[0] for one in (*bad.requests, *good.requests)}
    assert ids == {record.request_id} == set(answer.values("x-request-id"))
    assert {one.request_id for one in door.brain.requests} == ids
    assert {one.plan.decision.request_id for one in record.attempts} == ids


@pytest.mark.parametrize("target", ["/v1/models", "/v1/models/unknown", "/health"])
@pytest.mark.parametrize("sent", [[], [("x-request-id", "abc")], [("x-request-id", "a b")]])
async def test_own_answers_have_an_id_too(target: str, sent: list[tuple[str, str]]) -> None:
    kept = KeptRecords()
    async with front_door(observers=[kept]) as door:
        answer = await ask(door, "GET", target, sent, body=None)
    (request_id,) = answer.values("x-request-id")
    assert (request_id == "abc") is (("x-request-id", "abc") in sent)
    assert {one.request_id for one in kept.ended_records} <= {request_id}
