"""What SGLang's cache can be set to, as it is told and served over HTTP: adapters, pairs, staging."""

import json
from typing import Any

import httpx
import pytest

from tests.worker.served import served, small, until
from worker.adapters import parse_adapters

IDS = list(range(100, 165))
"""Four pages of 16, and a token that is always computed."""
CHAT = {"messages": [{"role": "user", "content": "Tell me about the sea and the ships on it."}]}


async def generated(client: httpx.AsyncClient, **fields: object) -> dict[str, Any]:
    """What the worker says of a prompt's tokens."""
    body = {"input_ids": IDS, "sampling_params": {"max_new_tokens": 1}} | fields
    answer = await client.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    meta: dict[str, Any] = answer.json()["meta_info"]
    return meta


async def chatted(client: httpx.AsyncClient, **fields: object) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 1} | fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_server_info_tells_the_modes_as_sglang_does() -> None:
    fields = {"speculative_algorithm": "EAGLE", "kv_events_format": "dynamo", "topic": "t"}
    modes = {"hicache_host_memory_mode": "buffer_only", "storage": "memory"}
    async with served(small(**fields, **modes, lora_paths=["sql=/loras/sql", "chat"])) as client:
        info = (await client.get("/server_info")).json()
        cards = (await client.get("/v1/models")).json()["data"]
    assert info["speculative_algorithm"] == "EAGLE"
    assert info["hicache_host_memory_mode"] == "buffer_only"
    assert info["enable_lora"] is True
    assert [lora["lora_name"] for lora in info["lora_paths"]] == ["sql", "chat"]
    told = json.loads(info["kv_events_config"])
    port = info["kv_events"]["endpoint_port_base"]
    assert (told["format"], told["topic"]) == ("dynamo", "t")
    assert told["endpoint"] == f"tcp://127.0.0.1:{port}"
    assert [(card["id"], card["parent"], card["root"]) for card in cards[1:]] == [
        ("sql", "kvroute-sim", "/loras/sql"),
        ("chat", "kvroute-sim", "chat"),
    ]


async def test_without_them_it_tells_that_too() -> None:
    async with served(small(events_port=None)) as client:
        info = (await client.get("/server_info")).json()
    assert info["speculative_algorithm"] is None
    assert info["hicache_host_memory_mode"] == "cache"
    assert (info["enable_lora"], info["lora_paths"]) == (False, None)
    assert info["kv_events_config"] is None


async def test_adapters_are_namespaces_however_they_are_named() -> None:
    async with served(small(lora_paths=["sql=/loras/sql", "chat"])) as client:
        for name in ("sql", "chat"):
            answer = await chatted(client, model=f"kvroute-sim:{name}")
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert answer["model"] == name
        for fields in ({"model": "sql"}, {"lora_path": "sql"}, {"model": "sql", "lora_path": "x"}):
            answer = await chatted(client, **fields)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16
        answer = await chatted(client)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert answer["model"] == "kvroute-sim"
        assert (await generated(client, lora_path="sql"))["cached_tokens"] == 0
        assert (await generated(client, lora_path="sql"))["cached_tokens"] == 64
        assert (await generated(client, lora_path="sql", extra_key="e"))["cached_tokens"] == 0
        assert (await generated(client))["cached_tokens"] == 0
        rank = await until(client, is_idle=True)
    assert len(set(rank["GPU"])) == len(rank["GPU"])  # no two of them have a hash in common


@pytest.mark.parametrize(
    "model", ["other", "other:sql", "kvroute-sim:", "kvroute-sim:other", None, 7]
)
async def test_unknown_models_are_not_found(model: object) -> None:
    async with served(small(lora_paths=["sql"])) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT | {"model": model})
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "model"


async def test_unknown_adapters_are_refused() -> None:
    async with served(small(lora_paths=["sql"])) as client:
        answer = await client.post("/generate", json={"input_ids": IDS, "lora_path": "other"})
        assert answer.status_code == 400
        assert "other" in answer.json()["error"]["message"]


async def test_staging_holds_nothing_on_host() -> None:
    modes = {"hicache_host_memory_mode": "buffer_only", "storage": "memory"}
    wait = {"prefetch_threshold": 16, "prefetch_policy": "wait_complete"}
    async with served(small(**modes, **wait, gpu_tokens=96, host_tokens=512)) as client:
        assert (await generated(client))["cached_tokens"] == 0
        await until(client, is_idle=True)
        other = await generated(client, input_ids=[token + 1_000 for token in IDS])
        assert other["cached_tokens"] == 0
        await until(client, is_idle=True)
        details = (await generated(client))["cached_tokens_details"]
        rank = await until(client, is_idle=True)
    assert details == {"device": 0, "host": 0, "storage": 64}
    assert rank["CPU_PINNED"] == rank["CPU_PINNED_in_flight"] == []
    assert rank["host_free"] == rank["host_capacity"]
    assert rank["counters"]["tokens_refilled"] == 64
    assert rank["counters"]["storage_tokens_written"] == 128


def test_ids_of_adapters_are_their_names_and_paths() -> None:
    first, again = (parse_adapters(["sql=/loras/sql"])["sql"] for _ in range(2))
    other = parse_adapters(["sql=/loras/other"])["sql"]
    assert first.id == again.id != other.id
    assert len(first.id) == 32
    assert first.extra_key("own") == "own" + first.id
