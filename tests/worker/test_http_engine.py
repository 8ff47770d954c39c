"""What the worker tells of its engine over HTTP: identity, ranks, the queue, its caches, metrics."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.worker.served import served, small, until

CHAT = {"messages": [{"role": "user", "content": "Tell me about the sea and the ships on it."}]}
LONG = {"messages": [{"role": "user", "content": "word " * 200}]}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Of a quick worker."""
    async with served(small()) as client:
        yield client


async def test_identity(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).status_code == 200
    model = (await client.get("/v1/models")).json()["data"][0]
    info = (await client.get("/server_info")).json()
    assert (await client.get("/get_server_info")).json() == info
    assert model["id"] == info["served_model_name"] == "kvroute-sim"
    assert model["root"] == info["tokenizer_path"] == info["model_path"]
    assert model["max_model_len"] == 4_096
    assert (info["page_size"], info["dp_size"], info["version"]) == (16, 1, "0.5.23")
    assert info["kv_events"] == {
        "publisher": "zmq",
        "endpoint_host": "127.0.0.1",
        "endpoint_port_base": info["kv_events"]["endpoint_port_base"],
        "topic": "",
        "block_size": 16,
        "dp_size": 1,
        "replay_endpoint_port_base": info["kv_events"]["replay_endpoint_port_base"],
    }
    assert (await client.get("/get_model_info")).json()["is_generation"] is True


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"events_port": None}, None),
        ({"replay_port": None}, "no replay"),
        ({"host": "0.0.0.0"}, "*"),
    ],
)
async def test_advertised_events(fields: dict[str, object], expected: str | None) -> None:
    async with served(small(**fields)) as client:
        events = (await client.get("/server_info")).json()["kv_events"]
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    if expected is None:
        assert events is None
    elif expected == "*":
        assert events["endpoint_host"] == "*"
    else:
        assert "replay_endpoint_port_base" not in events


async def test_pages_of_a_request_with_priority_stay() -> None:
    fields = {"gpu_tokens": 64, "host_tokens": None, "eviction_policy": "priority"}
    async with served(small(**fields)) as client:

        async def cached(prompt: list[int], priority: int) -> int:
            body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 1}}
            answer = await client.post("/generate", json=body | {"priority": priority})
            return int(answer.json()["meta_info"]["cached_tokens"])

        kept, gone, last = ([number] * 20 for number in (1, 2, 3))
        assert [await cached(kept, 5), await cached(gone, 1), await cached(last, 1)] == [0, 0, 0]
        await cached([4] * 30, 1)
        assert [await cached(kept, 5), await cached(gone, 1)] == [16, 0]


async def test_ranks_go_round_unless_named() -> None:
    async with served(small(dp_size=2)) as client:
        body = {"input_ids": [1, 2, 3]}
        ranks = []
        header = {"x-data-parallel-rank": "0"}  # which this route does not read
        for named in ({}, {}, {"routed_dp_rank": 1}, {"data_parallel_rank": 1}, {}):
            answer = await client.post("/generate", json=body | named, headers=header)
            ranks.append(answer.json()["meta_info"]["dp_rank"])
        assert ranks == [0, 1, 1, 1, 0]
        wrong = await client.post("/generate", json=body | {"routed_dp_rank": 7})
        assert wrong.status_code == 400
        assert "range [0, 2)" in wrong.json()["error"]["message"]
        ranks_held = (await client.get("/debug/residency")).json()["ranks"]
        assert [rank["dp_rank"] for rank in ranks_held] == [0, 1]


async def test_full_queue_is_answered_503() -> None:
    async with served(small(max_running=1, max_waiting=1, speed=1.0)) as client:
        body = CHAT | {"max_tokens": 500, "stream": True}
        async with (
            client.stream("POST", "/v1/chat/completions", json=body) as running,
            asyncio.TaskGroup() as group,
        ):
            lines = running.aiter_lines()
            await anext(lines)
            waiting = group.create_task(client.post("/v1/chat/completions", json=CHAT))
            await until(client, num_running=1, num_waiting=1)
            refused = await client.post("/v1/chat/completions", json=CHAT)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["type"] == "ServiceUnavailableError"
            await running.aclose()
            assert (await waiting).status_code == 200


async def test_residency_and_counters(client: httpx.AsyncClient) -> None:
    await client.post("/v1/chat/completions", json=LONG | {"max_tokens": 1})
    rank = await until(client, is_idle=True)
    assert len(rank["GPU"]) == (4_096 - rank["gpu_free"]) // 16
    assert set(rank["CPU_PINNED"]) == set(rank["GPU"])
    assert rank["CPU_PINNED_in_flight"] == []
    assert all(0 <= int(value) < 1 << 64 for value in rank["GPU"])
    assert rank["last_seq"] == rank["counters"]["events_published"] - 1
    assert rank["counters"]["tokens_refilled"] == 0


async def test_flush_cache(client: httpx.AsyncClient) -> None:
    await client.post("/v1/chat/completions", json=LONG | {"max_tokens": 1})
    before = await until(client, is_idle=True)
    assert (await client.post("/flush_cache")).status_code == 200
    after = await until(client, is_idle=True, GPU=[], CPU_PINNED=[])
    assert after["last_seq"] == before["last_seq"] + 1


async def test_flush_cache_is_refused_while_requests_run() -> None:
    async with served(small(speed=1.0)) as client:
        body = CHAT | {"max_tokens": 1_000, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            assert (await client.post("/flush_cache")).status_code == 400


async def test_metrics(client: httpx.AsyncClient) -> None:
    await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 3})
    await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 3})
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = dict(
        line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#")
    )
    labels = 'model_name="kvroute-sim"'
    assert samples[f'sglang:num_retractions_total{{dp_rank="0",{labels}}}'] == "0.0"
    assert samples[f'sglang:num_queue_reqs{{dp_rank="0",{labels}}}'] == "0.0"
    assert samples[f'sglang:generation_tokens_total{{dp_rank="0",{labels}}}'] == "6.0"
    assert samples[f'sglang:cached_tokens_total{{dp_rank="0",{labels}}}'] == "16.0"
    assert not any(name.startswith("vllm:") for name in samples)


async def test_storage_is_shared_through_a_directory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("storage")
    fields: dict[str, object] = {"storage": f"dir:{directory}", "prefetch_threshold": 64}
    body = {"input_ids": list(range(5, 205)), "sampling_params": {"max_new_tokens": 1}}
    async with served(small(**fields)) as writer:
        await writer.post("/generate", json=body)
        await until(writer, is_idle=True)
    async with served(small(**fields)) as reader:
        meta = (await reader.post("/generate", json=body)).json()["meta_info"]
        assert meta["cached_tokens_details"] == {"device": 0, "host": 0, "storage": 192}
        rank = await until(reader, is_idle=True)
        assert rank["counters"]["tokens_refilled"] == 192


async def test_what_storage_refuses_is_shown(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("storage")
    fields: dict[str, object] = {"storage": f"dir:{directory}", "prefetch_threshold": 64}
    body = {"input_ids": list(range(5, 205)), "sampling_params": {"max_new_tokens": 1}}
    async with served(small(**fields)) as writer:
        await writer.post("/generate", json=body)
        await until(writer, is_idle=True)
        assert (await writer.get("/debug/residency")).json()["storage"]["put"] == 12
    for path in directory.glob("??/*"):
        path.write_bytes(b"torn")
    async with served(small(**fields)) as reader:
        await reader.post("/generate", json=body)
        await reader.post("/generate", json={"input_ids": list(range(300, 400))})
        rank = await until(reader, is_idle=True)
        told = (await reader.get("/debug/residency")).json()["storage"]
        metrics = (await reader.get("/metrics")).text
    assert told["corrupt"] == 1
    assert rank["counters"]["storage_tokens_abandoned"] == 192
    assert rank["counters"]["prefetches_skipped_below_threshold"] == 1
    assert rank["counters"]["prefetches_skipped_host_full"] == 0
    labels = 'model_name="kvroute-sim",name="corrupt"'
    assert f"kvroute_worker_storage_pages_total{{{labels}}} 1.0" in metrics


async def test_without_storage_nothing_is_told_of_it(client: httpx.AsyncClient) -> None:
    assert (await client.get("/debug/residency")).json()["storage"] is None


async def test_chats_are_rendered_as_the_engine_does_it() -> None:
    """By rules of SGLang's own, where it has some."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    chat = {
        "messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "so"}]
    }
    async with served(small()) as client:
        tokens = (await client.post("/tokenize", json=chat)).json()["tokens"]
        text = (await client.post("/detokenize", json={"tokens": tokens})).json()["prompt"]
    assert "<|turn|>user\none two<|end_turn|>" in text
    assert "<|turn|>user\nso<|end_turn|>" in text
