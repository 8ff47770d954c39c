"""Every way in which a worker may tell where it publishes, and every form in which it may publish, ends in the same credit.

A real router process, workers that answer as little as is enough, and prompts that are token ids, so that no tokenizer
is needed.
"""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgpack
import pytest

from tests.e2e.test_event_streams import Router, router
from tests.indexer.loopback import Changes
from tests.indexer.raw_publisher import RawPublisher
from tests.router.stub_engine import StubEngine, stub_engine

pytestmark = pytest.mark.e2e

SIZE = 16
TOKENS = list(range(1000, 1000 + 4 * SIZE))
HASHES = [7, 1 << 63, 9, (1 << 64) - 1]
MODELS = {"data": [{"id": "m"}]}

Pages = Mapping[str, object]


def flag(port: int) -> dict[str, object]:
    return {"publisher": "zmq", "endpoint": f"tcp://*:{port}"}


def kv_events(port: int) -> dict[str, object]:
    return {"endpoint_host": "*", "endpoint_port_base": port, "block_size": SIZE}


def ways(port: int) -> dict[str, tuple[Pages, dict[str, object] | None]]:
    """Pages of a worker, and what is configured of its events."""
    models = {"/v1/models": MODELS}
    sources = {"0": {"endpoint": f"tcp://*:{port}"}}
    named: dict[str, object] = {"endpoint": f"tcp://*:{port}"}
    return {
        "told": (models | {"/server_info": {"kv_events": kv_events(port)}}, None),
        "told without models": (
            {"/server_info": {"model_path": "m", "kv_events": kv_events(port)}}, None,
        ),
        "flag as text": (
            models | {"/server_info": {"page_size": SIZE, "kv_events_config": json.dumps(flag(port))}}, None,
        ),
        "flag as object": (models | {"/server_info": {"kv_events_config": flag(port)}}, None),
        "flag on the older route": (
            {"/get_server_info": {"model_path": "m", "kv_events_config": json.dumps(flag(port))}}, None,
        ),
        "vllm by rank": (models | {"/kv_event_sources": sources, "/version": {"version": "0.32.0"}}, None),
        "vllm as a list": (models | {"/kv_event_sources": [sources["0"]]}, None),
        "configured": (models, named),
        "configured at the host": (models, {"endpoint": f"tcp://localhost:{port}"}),
    }  # fmt: skip


def forms() -> dict[str, object]:
    """The same batch: four blocks of a prompt's start."""
    fields = ["BlockStored", HASHES, None, TOKENS, SIZE, None]
    names = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
    event = dict(zip(names, fields, strict=True))
    signed = event | {"block_hashes": [h - (1 << 64) if h >> 63 else h for h in HASHES]}
    as_bytes = event | {"block_hashes": [h.to_bytes(32, "big") for h in HASHES]}
    return {
        "array of arrays": [1.0, [fields]],
        "array of arrays, rank 0": [1.0, [[*fields, "GPU"]], 0],
        "array of maps, no rank": [1.0, [event | {"medium": "GPU"}], None],
        "array of maps": [1.0, [event], 0],
        "maps": {"ts": 1.0, "events": [event], "data_parallel_rank": 0},
        "maps, no rank": {"ts": 1.0, "events": [event], "attn_dp_rank": None},
        "signed": [1.0, [signed], 0],
        "bytes": [1.0, [as_bytes], 0],
        "appended fields": [1.0, [[*fields, "GPU", 5, "word", {"later": 1}]], 0, "later"],
    }


async def blocks_of(running: Router) -> dict[str, tuple[int, int, str]]:
    """By worker: blocks on GPU, their size, and trust."""
    body = {"model": "m", "prompt": [*TOKENS, 1]}
    decision = (await running.client.post("/debug/route?all=true", json=body)).json()
    assert decision["unrouted_by"] is None
    return {
        one["worker"]: (one["gpu_blocks"], one["block_size"], one["trust"])
        for one in decision["candidates"]
    }


async def test_every_way_to_be_known_and_every_form_of_events(tmp_path: Path) -> None:
    changes = Changes()
    async with AsyncExitStack() as stack:
        engines: dict[str, StubEngine] = {}
        publishers: list[RawPublisher] = []
        entries: list[dict[str, object]] = []
        for name in ways(0):
            publisher = RawPublisher(changes)
            stack.callback(publisher.close)
            publishers.append(publisher)
            port = urlsplit(publisher.endpoint).port
            assert port is not None
            engine = engines[name] = await stack.enter_async_context(stub_engine())
            pages, events = ways(port)[name]
            engine.pages = dict(pages)
            entries.append({"url": engine.url} | ({"events": events} if events else {}))
        half = len(entries) // 2
        running = await stack.enter_async_context(router({"workers": entries[:half]}, tmp_path))
        for entry in entries[half:]:
            answer = await running.client.post("/workers", json=entry)
            assert answer.status_code == httpx.codes.CREATED, answer.text
        for publisher in publishers:
            await changes.until(lambda one=publisher: one.num_subscribers > 0)  # type: ignore[misc]
        for publisher, batch in zip(publishers, forms().values(), strict=True):
            publisher.send(0, msgpack.packb(batch))
        for engine in engines.values():
            await running.until(engine, lambda rank, _: rank.get("gpu_blocks") == len(HASHES))
        expected = (len(HASHES), SIZE, "exact")
        assert await blocks_of(running) == {one.name: expected for one in engines.values()}
