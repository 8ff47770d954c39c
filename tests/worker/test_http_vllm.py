"""The HTTP surface of a worker that is vLLM: identity, events, caches, sleep; beside what was recorded."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zmq
import zmq.asyncio

from protocol import (
    BlockStored,
    EngineHash,
    ReplayEnd,
    decode_batch,
    parse_replay,
    replay_request,
)
from scripts.write_reference import REFERENCE
from tests.indexer.test_subscriber_listening import free_endpoint
from tests.worker.served import served, until
from worker.config import WorkerConfig

CHAT = {"messages": [{"role": "user", "content": "Tell me about the sea and the ships on it."}]}
TOKENS = list(range(5, 105))
PROMPT = {"prompt": TOKENS, "max_tokens": 2}
SURFACE = Path(__file__).parents[1] / "data" / "vllm" / "http_surface.json"


def vllm(**fields: object) -> WorkerConfig:
    """A quick little worker that is vLLM."""
    own = {"engine": "vllm", "port": 0, "page_size": 16, "gpu_tokens": 4_096, "speed": 50.0}
    return WorkerConfig.model_validate(own | fields)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Of such a worker."""
    async with served(vllm()) as client:
        yield client


def recorded(path: str, *, request: object = None) -> Any:
    """The body of the real server's answer to a route without a request, or with one that has its keys."""
    for line in json.loads(SURFACE.read_text()):
        if line["path"] == path and (line["request"] is None) == (request is None):
            return line["body"]
    raise LookupError(path)


def shape_of(value: object) -> object:
    """Keys, and types of what is there."""
    if isinstance(value, dict):
        return {key: shape_of(one) for key, one in value.items()}
    return type(value)


async def test_answers_have_the_shape_of_the_recorded_ones(client: httpx.AsyncClient) -> None:
    for path in ("/version", "/is_sleeping", "/is_paused", "/load", "/kv_event_sources"):
        answer = await client.get(path)
        assert answer.status_code == 200
        said = answer.json()
        own = said.pop("kvroute_worker", None)
        assert (own is not None) == (path == "/version"), "what it is, one route tells beside"
        assert shape_of(said) == shape_of(recorded(path))


async def test_models_and_tokens_have_what_the_recorded_ones_have(
    client: httpx.AsyncClient,
) -> None:
    (model,) = (await client.get("/v1/models")).json()["data"]
    (real,) = recorded("/v1/models")["data"]
    assert model["owned_by"] == real["owned_by"] == "vllm"
    assert set(model) == set(real) - {"permission"}
    tokens = (await client.post("/tokenize", json=CHAT)).json()
    assert set(tokens) == set(recorded("/tokenize", request=CHAT))
    answer = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert answer["usage"]["prompt_tokens"] == tokens["count"]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_what_only_sglang_has_is_not_there(client: httpx.AsyncClient) -> None:
    for path in ("/server_info", "/get_server_info", "/get_model_info"):
        assert (await client.get(path)).status_code == 404
    assert (await client.post("/generate", json={"text": "x"})).status_code == 404
    assert (await client.post("/flush_cache")).status_code == 404


async def test_the_reference_lists_the_routes(client: httpx.AsyncClient) -> None:
    page = (REFERENCE / "worker.md").read_text(encoding="utf-8")
    for path in (await client.get("/openapi.json")).json()["paths"]:
        assert f"`{path}`" in page


async def test_hits_are_told_and_a_salt_makes_another_prompt(client: httpx.AsyncClient) -> None:
    cached = []
    for fields in ({}, {}, {"cache_salt": "x"}, {"extra_key": "not vLLM's"}):
        body = (await client.post("/v1/completions", json=PROMPT | fields)).json()
        cached.append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 96, 0, 96]


async def test_metrics(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        await client.post("/v1/completions", json=PROMPT)
    lines = (await client.get("/metrics")).text.splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    labels = 'engine="0",model_name="kvroute-sim"'
    assert samples[f"vllm:num_requests_running{{{labels}}}"] == "0.0"
    assert samples[f"vllm:kv_cache_usage_perc{{{labels}}}"] == "0.0"
    assert samples[f"vllm:num_preemptions_total{{{labels}}}"] == "0.0"
    assert samples[f"vllm:prompt_tokens_cached_total{{{labels}}}"] == "96.0"
    assert samples[f'vllm:engine_sleep_state{{{labels},sleep_state="awake"}}'] == "1.0"
    (config,) = [name for name in samples if name.startswith("vllm:cache_config_info")]
    assert 'block_size="16"' in config
    assert 'num_gpu_blocks="256"' in config
    names = {name.partition("{")[0] for name in samples if name.startswith("vllm:")}
    real = {line.partition("{")[0] for line in recorded("/metrics")}
    assert names <= real
    assert not any(name.startswith("sglang:") for name in samples)


async def test_reset_is_refused_while_requests_run() -> None:
    async with served(vllm(speed=1.0)) as client:
        body = CHAT | {"max_tokens": 1_000, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            await anext(answer.aiter_lines())
            refused = await client.post("/reset_prefix_cache")
            assert (refused.status_code, refused.json()) == (200, {"success": False})
        await until(client, num_running=0)
        assert (await client.post("/reset_prefix_cache")).json() == {"success": True}
        rank = await until(client, is_idle=True, GPU=[])
        assert rank["events_waiting"] == 1


async def test_the_cpu_tier_is_cleared_when_it_is_named() -> None:
    async with served(vllm(offload_tokens=4_096)) as client:
        await client.post("/v1/completions", json=PROMPT)
        rank = await until(client, is_idle=True)
        assert len(rank["CPU"]) == 6
        await client.post("/reset_prefix_cache")
        assert len((await until(client, GPU=[]))["CPU"]) == 6
        await client.post("/reset_prefix_cache", params={"reset_external": True})
        await until(client, CPU=[])


@pytest.mark.parametrize(
    ("stop", "go_on", "told"), [("/sleep", "/wake_up", "is_sleeping"), ("/pause", "/resume", "is_paused")]
)  # fmt: skip
async def test_requests_wait_for_the_end_of_sleep_or_pause(
    client: httpx.AsyncClient, stop: str, go_on: str, told: str
) -> None:
    await client.post("/v1/completions", json=PROMPT)
    assert (await client.post(stop)).status_code == 200
    assert (await client.get(f"/{told}")).json() == {told: True}
    assert (await client.get("/health")).status_code == 200
    async with asyncio.TaskGroup() as group:
        request = group.create_task(client.post("/v1/completions", json=PROMPT))
        await until(client, num_waiting=1)
        assert not request.done()
        await client.post(go_on)
    assert request.result().json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert (await client.get(f"/{told}")).json() == {told: False}


async def test_sleep_is_told_by_level(client: httpx.AsyncClient) -> None:
    for level, state in ((1, "weights_offloaded"), (2, "discard_all")):
        await client.post("/sleep", params={"level": level})
        lines = (await client.get("/metrics")).text.splitlines()
        awake = [line for line in lines if "engine_sleep_state{" in line and line.endswith(" 1.0")]
        assert len(awake) == 1
        assert state in awake[0]
    await client.post("/pause")
    await client.post("/wake_up")
    assert (await client.get("/is_paused")).json() == {"is_paused": True}


async def test_ranks_are_told_apart() -> None:
    async with served(vllm(dp_size=2, topic="kv-events")) as client:
        sources = (await client.get("/kv_event_sources")).json()
        assert set(sources) == {"0", "1"}
        ports = [int(source["endpoint"].rpartition(":")[2]) for source in sources.values()]
        assert ports[1] == ports[0] + 1
        assert sources["1"]["topic"] == "kv-events"
        at_rank_1 = {"x-data-parallel-rank": "1"}
        await client.post("/v1/completions", json=PROMPT, headers=at_rank_1)
        ranks = (await client.get("/debug/residency")).json()["ranks"]
        assert [len(rank["GPU"]) for rank in ranks] == [0, 6]
        odd = await client.post(
            "/v1/completions", json=PROMPT, headers={"x-data-parallel-rank": "x"}
        )
        assert odd.status_code == 200
        beyond = await client.post(
            "/v1/completions", json=PROMPT, headers={"x-data-parallel-rank": "2"}
        )
        assert beyond.status_code == 400


@pytest.mark.parametrize("fields", [{"events_port": None}, {"replay_port": None}])
async def test_what_is_not_published_is_not_told(fields: dict[str, object]) -> None:
    async with served(vllm(**fields)) as client:
        sources = (await client.get("/kv_event_sources")).json()
    assert sources == {} or sources["0"]["replay_endpoint"] is None


@pytest.mark.parametrize(
    ("release", "byte_hashes"), [("0.23", False), ("0.25", False), ("0.32", True)]
)
async def test_events_and_replays_of_each_release(release: str, byte_hashes: bool) -> None:
    port = int(free_endpoint().rpartition(":")[2])
    config = vllm(release=release, byte_hashes=byte_hashes, replay_port=port)
    with zmq.asyncio.Context() as context:
        async with served(config) as client:
            assert (await client.get("/version")).json()["version"] == f"{release}.0"
            status = (await client.get("/kv_event_sources")).status_code
            assert status == (200 if release == "0.32" else 404)
            with context.socket(zmq.DEALER) as dealer:
                dealer.connect(f"tcp://127.0.0.1:{port}")
                await client.post("/v1/completions", json=PROMPT)
                await dealer.send_multipart(replay_request(0))
                frames = await dealer.recv_multipart()
                assert len(frames) == (4 if release == "0.32" else 3)
                reply = parse_replay(frames)
                assert not isinstance(reply, ReplayEnd)
                (event,) = decode_batch(reply.payload).events
                assert isinstance(event, BlockStored)
                assert isinstance(event.block_hashes[0], bytes) == byte_hashes
                assert list(event.token_ids) == TOKENS[:96]
                assert isinstance(parse_replay(await dealer.recv_multipart()), ReplayEnd)
                truth = (await client.get("/debug/residency")).json()["ranks"][0]["GPU"]
                assert {told(one) for one in event.block_hashes} == set(truth)


def told(engine_hash: EngineHash) -> str:
    """A hash as ``/debug/residency`` has it."""
    return str(engine_hash) if isinstance(engine_hash, int) else engine_hash.hex()
