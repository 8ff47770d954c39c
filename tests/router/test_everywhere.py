"""Aborts reach every worker."""

import json
from contextlib import AsyncExitStack

import pytest

from router.client_keys import ClientKeys
from tests.router.front_door import ask, connect, front_door
from tests.router.stub_worker import Peer, Script, answering, response, stub_worker
from tests.router.test_client_keys import entry

ABORT = b'{"rid":"r1","abort_all":false}'
JSON = [("Content-Type", "application/json"), ("X-A", "1")]


async def breaks(peer: Peer) -> None:
    peer.reset()


OK, NOT_THERE = answering(response(b"")), answering(response(b"{}", status=404))
TOO_MUCH = answering(response(b"x" * 100_000))


@pytest.mark.parametrize(
    ("scripts", "status", "body"),
    [
        ([OK, OK, OK], 200, b""),
        ([NOT_THERE, breaks, OK], 200, b""),
        ([answering(response(b"[1]", status=202)), OK], 202, b"[1]"),
        ([NOT_THERE, breaks], 404, b"{}"),
        ([TOO_MUCH, NOT_THERE], 404, b"{}"),
        ([breaks, breaks], 502, None),
        ([], 503, None),
    ],
)
@pytest.mark.parametrize("target", ["/abort_request", "/abort_requests/?x=1"])
async def test_each_worker_is_asked_and_the_best_answer_counts(
    scripts: list[Script], status: int, body: bytes | None, target: str
) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(stub_worker(script)) for script in scripts]
        door = await stack.enter_async_context(front_door(*(worker.url for worker in workers)))
        answer = await ask(door, "POST", target, JSON, ABORT)
        await door.settled()
    assert answer.status == status
    assert len(answer.values("x-request-id")) == 1
    if body is None:
        assert json.loads(answer.body)["error"]["type"] == "server_error"
    else:
        assert answer.body == body
    for worker in workers:
        (request,) = worker.requests
        assert (request.method, request.target, request.body) == ("POST", target, ABORT)
        assert request.values("x-a") == ["1"]
    assert door.brain.requests == []


async def test_a_worker_that_is_slow_is_left_when_the_client_leaves() -> None:
    async def never(peer: Peer) -> None:
        await peer.gone()
        peer.close()

    async with stub_worker(never) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", "/abort_request", JSON, ABORT)
            await worker.arrived.acquire()
        await door.settled()


@pytest.mark.parametrize(("administers", "status"), [(True, 200), (False, 403)])
async def test_with_keys_it_is_for_administrators(administers: bool, status: int) -> None:
    keys = ClientKeys([entry(administers=administers)])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        headers = [*JSON, ("Authorization", "Bearer key-a")]
        answer = await ask(door, "POST", "/abort_request", headers, ABORT)
        assert answer.status == status
        assert len(worker.requests) == (status == 200)


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_other_methods_go_to_one(method: str) -> None:
    async with stub_worker(OK) as one, stub_worker(OK) as two, front_door(one.url, two.url) as door:
        await ask(door, method, "/abort_request", JSON, ABORT)
        assert len(one.requests) + len(two.requests) == 1
