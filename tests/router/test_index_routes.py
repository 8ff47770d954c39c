"""The index for other programs: Mooncake's queries, and the dump."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message, Scope

from indexer import FleetIndex, Trust
from indexer.load import IndexLoad
from protocol import (
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    LiveMessage,
    Rank,
    WorkerId,
    block_keys,
    encode_batch,
    live_frames,
    pack_tokens,
)
from router.fleet_debug import FleetDebug
from router.index_dump import dump_index
from router.index_routes import index_routes
from router.query_views import HashQuery, HeldPrefixView, QueryAnswer, TokenQuery
from tests.router.brains import TestFleet, described, fleet, source
from tests.router.control_port import control

TOKENS = list(range(100, 116))
HASHES = [1, 2, 3, 4]


def stored(first: int, last: int, medium: str = "GPU", **fields: Any) -> BlockStored:
    parent = HASHES[first - 1] if first else None
    tokens = TOKENS[4 * first : 4 * last]
    return BlockStored(HASHES[first:last], parent, tokens, 4, medium, **fields)


def serve(one: TestFleet, name: str, *events: KvEvent, dp_rank: int = 0, **spec: Any) -> None:
    """A worker that has published these events."""
    one.learn(name, **spec)
    one.brains.index.apply(Rank(WorkerId(name), dp_rank), EventBatch(0.0, events), 1.0)


async def ask(one: TestFleet, path: str = "/query", **body: Any) -> dict[str, Any]:
    async with control(one) as (client, _):
        answer = await client.post(path, json={"model": "m", "block_size": 4, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_tokens_held_by_worker_medium_and_rank() -> None:
    with fleet() as one:
        serve(one, "w0", stored(0, 2), stored(0, 4, "CPU"), BlockRemoved([2], "GPU"))
        one.brains.index.apply(
            Rank(WorkerId("w0"), 1), EventBatch(0.0, [stored(0, 3, "DISK")]), 1.0
        )
        serve(one, "w1")
        one.brains.index.set_trust(Rank(WorkerId("w0")), Trust.JOINED, 1.0)
        assert await ask(one, token_ids=[*TOKENS, 7]) == {
            "default": {
                "w0": {
                    "longest_matched": 16, "GPU": 4, "CPU": 16, "DISK": 12,
                    "DP": {"0": 16, "1": 12},
                    "trust": {"0": "joined", "1": "none"},
                    "storage_source": {"0": None, "1": "announced"},
                },
                "w1": {
                    "longest_matched": 0, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 0},
                    "trust": {"0": "none"}, "storage_source": {"0": None},
                },
            }
        }  # fmt: skip


async def test_openapi_describes_bodies_and_answer() -> None:
    with fleet() as one:
        serve(one, "w0", stored(0, 4))
        async with control(one) as (client, _):
            described = (await client.get("/openapi.json")).json()
            answer = await client.post("/query", json={"model": "m", "token_ids": TOKENS})
        for path, kind in (("/query", TokenQuery), ("/query_by_hash", HashQuery)):
            route = described["paths"][path]["post"]
            body = route["requestBody"]["content"]["application/json"]["schema"]
            assert body["properties"].keys() == kind.model_fields.keys()
            told = route["responses"]["200"]["content"]["application/json"]["schema"]
            assert told == {"$ref": "#/components/schemas/QueryAnswer"}
        QueryAnswer.model_validate_json(answer.content)
        assert answer.json()["default"]["w0"].keys() == HeldPrefixView.model_fields.keys()


async def test_nothing_counts_behind_a_hole() -> None:
    with fleet() as one:
        serve(one, "w0", stored(0, 4), BlockRemoved([3], "GPU"))
        answer = await ask(one, token_ids=TOKENS)
        assert answer["default"]["w0"]["longest_matched"] == 8


async def test_hashes_are_those_of_the_public_convention() -> None:
    with fleet() as one:
        serve(one, "w0", stored(0, 4))
        keys = list(block_keys(pack_tokens(TOKENS), 4))
        signed = [key - (1 << 64) if key >> 63 else key for key in keys]
        for body in ({"seq_hashes": keys}, {"block_hash": keys}, {"seq_hashes": signed}):
            answer = await ask(one, "/query_by_hash", **body)
            assert answer["default"]["w0"]["GPU"] == 16
        answer = await ask(one, "/query_by_hash", seq_hashes=[keys[0], 5, keys[2]])
        assert answer["default"]["w0"]["longest_matched"] == 4
        answer = await ask(one, "/query_by_hash", seq_hashes=[])
        assert answer["default"]["w0"]["longest_matched"] == 0


@pytest.mark.parametrize(
    ("body", "matched"),
    [
        ({}, {"w0": 16, "salted": 0, "lora": 0}),
        ({"cache_salt": "s"}, {"w0": 0, "salted": 16, "lora": 0}),
        ({"lora_name": "a"}, {"w0": 0, "salted": 0, "lora": 16}),
        ({"lora_id": 3}, {"w0": 0, "salted": 0, "lora": 0}),
        ({"lora_name": "", "cache_salt": None}, {"w0": 16, "salted": 0, "lora": 0}),
        ({"instance_id": "w0"}, {"w0": 16}),
        ({"instance_id": "nobody"}, {}),
        ({"model": "other"}, {}),
        ({"block_size": 8}, {}),
        ({"block_size": None}, {"w0": 16, "salted": 0, "lora": 0}),
        ({"anything": [1]}, {"w0": 16, "salted": 0, "lora": 0}),
    ],
)
async def test_identity(body: dict[str, object], matched: dict[str, int]) -> None:
    with fleet() as one:
        serve(one, "w0", stored(0, 4))
        serve(one, "salted", stored(0, 4, cache_salt="s"))
        serve(one, "lora", stored(0, 4, lora_name="a"))
        asked: dict[str, Any] = {"token_ids": TOKENS, **body}
        answer = await ask(one, **asked)
        assert {w: of["longest_matched"] for w, of in answer["default"].items()} == matched


async def test_the_tenant_is_repeated() -> None:
    with fleet() as one:
        serve(one, "w0", stored(0, 1))
        answer = await ask(one, token_ids=TOKENS, tenant_id="t")
        assert answer["t"]["w0"]["GPU"] == 4


@pytest.mark.parametrize("path", ["/query", "/query_by_hash"])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'{"token_ids": [1]}', b'{"model": 3, "token_ids": [1], "seq_hashes": [1]}',
        b'{"model": "m", "token_ids": ["1"], "seq_hashes": ["1"]}',
        b'{"model": "m", "token_ids": [-1], "seq_hashes": [-9223372036854775809]}',
        b'{"model": "m", "token_ids": [4294967296], "seq_hashes": [18446744073709551616]}',
        b'{"model": "m", "token_ids": [1], "seq_hashes": [1], "block_hash": [1], "block_size": 0}',
        b'{"model": "m\xff", "token_ids": [1], "seq_hashes": [1]}',
    ],
)  # fmt: skip
async def test_what_is_no_query_is_refused(path: str, body: bytes) -> None:
    with fleet() as one:
        async with control(one) as (client, _):
            assert (await client.post(path, content=body)).status_code == 400
            assert (await client.post(path, content=b"7" * 10_001)).status_code == 413


async def test_everything_asks_for_the_token() -> None:
    with fleet() as one:
        async with control(one, token="secret") as (client, _):
            assert (await client.post("/query", json={})).status_code == 401
            assert (await client.post("/query_by_hash", json={})).status_code == 401
            assert (await client.get("/debug/index/dump")).status_code == 401
            allowed = {"Authorization": "Bearer secret"}
            assert (await client.get("/debug/index/dump", headers=allowed)).status_code == 200


def publish(one: TestFleet, name: str, port: int, batches: Sequence[EventBatch]) -> None:
    """A worker that publishes these batches on its event socket."""
    where = source(name, port)
    one.learn(name, sources=(where,))
    one.brains.intake.on_connected(where, 1.0)
    for seq, batch in enumerate(batches):
        one.brains.intake.on_live(
            where, live_frames(LiveMessage(b"", seq, encode_batch(batch))), 1.0
        )


async def dumped(one: TestFleet, **params: str) -> list[bytes]:
    async with control(one) as (client, _):
        answer = await client.get("/debug/index/dump", params=params)
    assert answer.headers["content-type"] == "application/x-ndjson"
    return answer.content.splitlines()


async def test_a_dump_has_the_marks_of_each_rank() -> None:
    with fleet() as one:
        publish(one, "a", 5557, [EventBatch(float(i), [stored(0, i + 1)], 0) for i in range(3)])
        publish(one, "b", 5657, [EventBatch(0.0, [], 0)])
        lines = await dumped(one)
        index = FleetIndex()
        for name in ("a", "b"):
            index.add_worker(described(name).spec, 0.0)
        loading = IndexLoad(index, 0.0)
        for line in lines:
            loading.feed(line)
        loading.finish()
        marks = {line.worker: (line.seq, line.trust) for line in loading.loaded}
        assert marks == {"a": (2, Trust.EXACT), "b": (0, Trust.EXACT)}
        numbers = [n for n, _ in loading.loaded[0].digests]
        assert numbers == [0, 1, 2]
        assert index.residency(Rank(WorkerId("a"))) == one.brains.index.residency(
            Rank(WorkerId("a"))
        )
        alone = await dumped(one, worker="b")
        assert [line for line in alone if b'"worker":"a"' in line] == []
        assert len(await dumped(one, worker="nobody")) == 2


async def test_events_go_on_while_a_dump_is_told() -> None:
    """Each rank is as it was when its turn came, right after the batch of its mark."""
    with fleet() as one:
        publish(one, "a", 5557, [EventBatch(0.0, [stored(0, 2)], 0)])
        publish(one, "b", 5657, [EventBatch(0.0, [stored(0, 1)], 0)])
        index = one.brains.index
        told: list[bytes] = []
        async for line in dump_index(index, one.brains.intake, one.clock):
            told.append(line)
            if b'"rank"' in line and b'"worker":"a"' in line:
                for name in "ab":
                    batch = EventBatch(1.0, [BlockRemoved([1], "GPU")])
                    index.apply(Rank(WorkerId(name)), batch, 2.0, 1)
        text = b"".join(told)
        held = [line for line in told if b'"held"' in line and b'"hashes"' in line]
        assert text.count(b'"seq":0') == 1
        assert text.count(b'"seq":1') == 1
        assert len(held) == 1  # a, as it was; b, when its turn came
        assert b'"hashes":[1,2]' in held[0]


@asynccontextmanager
async def one_dump_at_a_time(stall_s: float = 10.0) -> AsyncIterator[tuple[FastAPI, Scope]]:
    """The routes, and a request for a dump."""
    with fleet() as one, ThreadPoolExecutor(1) as executor:
        serve(one, "w0", stored(0, 4))
        brains = one.brains
        view = FleetDebug(
            one.registry, brains.index, brains.intake, brains.planner, brains.shelf, one.clock
        )
        app = FastAPI()
        app.include_router(index_routes(view, executor, 1_000, max_dumps=1, stall_s=stall_s))
        yield app, {
            "type": "http", "method": "GET", "path": "/debug/index/dump", "headers": [],
            "query_string": b"", "http_version": "1.1", "scheme": "http",
        }  # fmt: skip


async def ask_for_dump(app: FastAPI) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get("/debug/index/dump")


async def test_a_dump_too_many_is_refused_until_one_ends() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, object]:
        await may_end.wait()
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        begun.set()
        await may_end.wait()

    async with one_dump_at_a_time() as (app, scope):
        slow = asyncio.create_task(app(scope, receive, send))
        await begun.wait()
        refused = await ask_for_dump(app)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        may_end.set()
        await slow
        assert (await ask_for_dump(app)).status_code == 200


@pytest.mark.parametrize("num_taken", [0, 1, 3])
async def test_a_reader_that_stalls_is_broken_off_and_makes_room(
    num_taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if len(sent) == num_taken:
            await asyncio.Event().wait()
        sent.append(message)

    async with one_dump_at_a_time(stall_s=0.05) as (app, scope):
        async with asyncio.timeout(10.0):
            await app(scope, receive, send)
        assert len(sent) == num_taken
        assert all(message.get("more_body", True) for message in sent)  # the reader can tell
        assert "takes too long" in caplog.text
        assert (await ask_for_dump(app)).status_code == 200
