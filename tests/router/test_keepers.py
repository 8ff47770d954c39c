"""Requests about what a worker keeps go to that worker, and to no other."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from protocol import WorkerId
from router.made_ids import Lost
from tests.router.front_door import FrontDoor, WireAnswer, ask, connect, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    Script,
    StubWorker,
    chunk,
    response,
    stub_worker,
)

RESPONSES = "/v1/responses"
JSON = [("Content-Type", "application/json")]
CREATE = b'{"model":"m","input":"hi"}'


def keeping(name: str) -> Script:
    """An engine that makes responses, numbered, and keeps them."""
    kept: dict[str, object] = {}

    async def script(peer: Peer) -> None:
        path, request = peer.request.target.split("?")[0], peer.request
        if request.method == "POST" and path.count("/") == 2:
            made_id = f"{name}_{len(kept)}"
            kept[made_id] = {"id": made_id, "object": path.rsplit("/", 1)[1]}
            body = json.loads(request.body) if request.body.startswith(b"{") else {}
            if isinstance(body, dict) and body.get("previous_response_id", made_id) not in kept:
                await peer.send(response(b'{"error":{"message":"lost"}}', status=404))
            elif isinstance(body, dict) and body.get("stream"):
                await peer.send(SSE_HEAD + chunk(created(kept[made_id])) + LAST_CHUNK)
            else:
                await peer.send(response(json.dumps(kept[made_id]).encode()))
            return
        made_id = path.split("/")[3]
        status = 200 if made_id in kept else 404
        await peer.send(response(json.dumps(kept.get(made_id)).encode(), status=status))

    return script


def created(made: object) -> bytes:
    data = {"response": made, "sequence_number": 0, "type": "response.created"}
    text = {"type": "response.output_text.delta", "delta": "x"}
    return b"event: response.created\ndata: %s\n\ndata: %s\n\n" % (
        json.dumps(data).encode(),
        json.dumps(text).encode(),
    )


@asynccontextmanager
async def fleet(
    num_workers: int = 3, make: Callable[[str], Script] = keeping
) -> AsyncIterator[tuple[FrontDoor, list[StubWorker]]]:
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(stub_worker(make(f"w{index}")))
            for index in range(num_workers)
        ]
        door = await stack.enter_async_context(front_door(*(worker.url for worker in workers)))
        yield door, workers
        await door.settled()


async def spread(door: FrontDoor, path: str = RESPONSES, body: bytes = CREATE) -> dict[str, str]:
    """Make something on every worker; by id who made it."""
    made: dict[str, str] = {}
    ranks = list(door.brain.urls.items())
    for name, url in ranks:
        door.brain.urls = {name: url}
        answer = await ask(door, "POST", path, JSON, body)
        assert answer.status == 200
        made[answer_id(answer)] = name
    door.brain.urls = dict(ranks)
    return made


def answer_id(answer: WireAnswer) -> str:
    text = answer.body.decode()
    found = text[text.index('"id": "') + 7 :].split('"')[0]
    assert found
    return found


@pytest.mark.parametrize("is_streaming", [False, True])
async def test_what_a_worker_made_is_asked_of_that_worker(is_streaming: bool) -> None:
    body = json.dumps({"model": "m", "input": "hi", "stream": is_streaming}).encode()
    async with fleet() as (door, _):
        made = await spread(door, body=body)
        assert len(made) == 3
        for made_id, name in made.items():
            for method, target in (
                ("GET", f"{RESPONSES}/{made_id}"),
                ("GET", f"{RESPONSES}/{made_id}?stream=true&starting_after=3"),
                ("GET", f"{RESPONSES}/{made_id}/input_items?limit=2"),
                ("HEAD", f"{RESPONSES}/{made_id}"),
                ("POST", f"{RESPONSES}/{made_id}/cancel"),
                ("POST", f"{RESPONSES}/{made_id}/cancel/"),
                ("DELETE", f"{RESPONSES}/{made_id}"),
            ):
                answer = await ask(door, method, target, body=None)
                assert (answer.status, answer.values("x-kvroute-worker")) == (200, [name]), target


async def test_a_response_goes_on_where_its_history_is() -> None:
    async with fleet() as (door, _):
        for path in (RESPONSES, f"{RESPONSES}/"):
            for made_id, name in (await spread(door)).items():
                body = {"model": "m", "input": "more", "previous_response_id": made_id}
                for _ in range(4):
                    answer = await ask(door, "POST", path, JSON, json.dumps(body).encode())
                    assert (answer.status, answer.values("x-kvroute-worker")) == (200, [name])
                    body["previous_response_id"] = answer_id(answer)


@pytest.mark.parametrize("collection", ["files", "batches", "uploads", "videos", "conversations"])
async def test_other_things_that_engines_keep(collection: str) -> None:
    path = f"/v1/{collection}"
    async with fleet() as (door, _):
        made = await spread(door, path, b"--b\r\n\r\nfile\r\n--b--")
        for made_id, name in made.items():
            answer = await ask(door, "GET", f"{path}/{made_id}/content", body=None)
            assert (answer.status, answer.values("x-kvroute-worker")) == (200, [name])


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/batches", {"input_file_id": "w2_0"}),
        (RESPONSES, {"conversation": "w2_0"}),
        (RESPONSES, {"conversation": {"id": "w2_0"}}),
    ],
)
async def test_bodies_that_name_what_is_kept(path: str, field: dict[str, object]) -> None:
    async with fleet() as (door, _):
        await spread(door, "/v1/files")
        answer = await ask(door, "POST", path, JSON, json.dumps(field).encode())
        assert answer.values("x-kvroute-worker") == ["w2"]


async def test_an_id_can_be_asked_for_while_its_answer_still_comes() -> None:
    received = asyncio.Event()

    def make(name: str) -> Script:
        async def script(peer: Peer) -> None:
            if peer.request.target.endswith("/cancel"):
                received.set()
                await peer.send(response(b"{}"))
                return
            await peer.send(SSE_HEAD)
            for byte in created({"id": f"{name}_long"}):
                await peer.send(chunk(bytes([byte])))
            await received.wait()
            await peer.send(LAST_CHUNK)

        return script

    async with fleet(2, make) as (door, _), connect(door.port) as client:
        await client.send("POST", RESPONSES, JSON, b'{"model":"m","stream":true}')
        await client.head()
        text = b""
        while not text.endswith(b'"x"}\n\n'):
            text += await client.chunk()
        name = text.split(b"_long")[0].rsplit(b'"', 1)[1].decode()
        cancelled = await ask(door, "POST", f"{RESPONSES}/{name}_long/cancel", body=b"")
        assert cancelled.values("x-kvroute-worker") == [name]
        assert await client.chunk() == b""


async def test_an_unknown_id_goes_by_load_and_what_is_said_of_it_passes() -> None:
    async with fleet() as (door, _):
        answer = await ask(door, "GET", f"{RESPONSES}/nobodys", body=None)
        assert (answer.status, answer.body) == (404, b"null")
        body = b'{"model":"m","previous_response_id":"nobodys"}'
        assert (await ask(door, "POST", RESPONSES, JSON, body)).status == 404
        assert [request.keeper for request in door.brain.requests] == [None, None]


async def test_what_a_worker_kept_goes_with_it() -> None:
    async with fleet() as (door, workers):
        (made_id, *_) = await spread(door)
        num_before = sum(len(worker.requests) for worker in workers)
        door.fleet.names = None
        asked = await ask(door, "GET", f"{RESPONSES}/{made_id}", body=None)
        body = json.dumps({"model": "m", "previous_response_id": made_id}).encode()
        going_on = await ask(door, "POST", RESPONSES, JSON, body)
        for answer, param in ((asked, None), (going_on, "previous_response_id")):
            error = json.loads(answer.body)["error"]
            assert answer.status == 404
            assert (error["code"], error["param"]) == ("not_found", param)
            assert made_id in error["message"]
        assert sum(len(worker.requests) for worker in workers) == num_before


async def test_a_keeper_that_takes_nothing_is_waited_for() -> None:
    async with fleet() as (door, _):
        made = await spread(door)
        made_id, name = next(iter(made.items()))
        del door.brain.urls[name]
        answer = await ask(door, "GET", f"{RESPONSES}/{made_id}", body=None)
        assert (answer.status, answer.values("retry-after")) == (503, ["1"])
        assert json.loads(answer.body)["error"]["code"] == "no_worker"


async def test_a_keeper_that_cannot_be_reached_is_not_replaced() -> None:
    async with fleet(2) as (door, workers):
        made = await spread(door)
        made_id, name = next(iter(made.items()))
        door.brain.urls[name] = "http://127.0.0.1:9"
        answer = await ask(door, "GET", f"{RESPONSES}/{made_id}", body=None)
        assert (answer.status, answer.values("retry-after")) == (502, ["1"])
        assert len(workers[0].requests) + len(workers[1].requests) == 2


async def test_a_response_of_one_model_does_not_go_on_with_another() -> None:
    async with fleet() as (door, _):
        (made_id, *_) = await spread(door)
        body = json.dumps({"model": "m2", "previous_response_id": made_id}).encode()
        answer = await ask(door, "POST", RESPONSES, JSON, body)
        assert answer.status == 404
        assert json.loads(answer.body)["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("raw", "num_lost"),
    [
        (response(b'{"id":"x"}', status=400), 0),
        (response(b'{"object":"response"}'), 1),
        (response(b"\x1f\x8b", headers=(("Content-Encoding", "gzip"),)), 1),
    ],
)
async def test_answers_that_give_no_id(raw: bytes, num_lost: int) -> None:
    def make(_name: str) -> Script:
        async def script(peer: Peer) -> None:
            await peer.send(raw)

        return script

    async with fleet(1, make) as (door, _):
        answer = await ask(door, "POST", RESPONSES, JSON, CREATE)
        assert answer.body == raw.split(b"\r\n\r\n")[1]
        assert door.made.lost[Lost.UNREADABLE] == num_lost
        assert len(door.made) == 0


async def test_other_paths_leave_no_ids() -> None:
    async with fleet(1) as (door, _):
        for target in ("/v1/chat/completions", "/v1/completions", "/generate", "/v1/embeddings"):
            await ask(door, "POST", target, JSON, CREATE)
        await ask(door, "GET", RESPONSES, body=None)
        assert len(door.made) == 0
        door.made.note("w", WorkerId("nobody"), 0.0)
        answer = await ask(door, "GET", "/v1/threads/w", body=None)
        assert answer.status == 404
        assert door.brain.requests[-1].keeper is None


async def test_sessions_are_gone_on_with_where_they_were_opened() -> None:
    def make(name: str) -> Script:
        async def script(peer: Peer) -> None:
            await peer.send(response(json.dumps(f"session-{name}").encode()))

        return script

    async with fleet(3, make) as (door, _):
        names = dict(door.brain.urls)
        for name, url in names.items():
            door.brain.urls = {name: url}
            await ask(door, "POST", "/open_session", JSON, b'{"capacity_of_str_len":1000}')
        door.brain.urls = names
        for name in names:
            session = f"session-{name}"
            for target, body in (
                ("/generate", {"text": "x", "session_params": {"id": session, "rid": None}}),
                ("/v1/chat/completions", {"messages": [], "session_params": {"id": session}}),
                ("/v1/completions", {"prompt": "x", "session_params": {"id": session}}),
                ("/close_session", {"session_id": session}),
            ):
                answer = await ask(door, "POST", target, JSON, json.dumps(body).encode())
                assert answer.values("x-kvroute-worker") == [name], target
        for odd in (None, 5, {}, {"id": None}, {"id": "unknown"}, ["x"]):
            text = json.dumps({"text": "x", "session_params": odd}).encode()
            answer = await ask(door, "POST", "/generate", JSON, text)
            assert answer.status == 200
            assert door.brain.requests[-1].keeper is None
