"""A worker as a process, and what it publishes while it serves."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import httpx
import pytest
import zmq
import zmq.asyncio

from prompt import PromptModelError
from protocol import (
    AllBlocksCleared,
    EventBatch,
    KvEvent,
    ReplayEnd,
    decode_batch,
    parse_replay,
    replay_request,
)
from tests.worker.served import client_of, served, small, started, until
from tests.worker.virtual_time import Claims
from worker.config import WorkerConfig
from worker.event_sockets import EventPortError
from worker.service import serve_worker

SCRIPT = """
import asyncio
from worker.config import WorkerConfig
from worker.service import serve_worker
config = WorkerConfig(port=0, page_size=16, speed=0.01, drain_s=0.1)
asyncio.run(serve_worker(config, on_ready=lambda port: print(port, flush=True)))
"""


async def replayed(port: int) -> list[EventBatch]:
    """Everything that a replay socket has."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(f"tcp://127.0.0.1:{port}")
        await dealer.send_multipart(replay_request(0))
        batches: list[EventBatch] = []
        while not isinstance(reply := parse_replay(await dealer.recv_multipart()), ReplayEnd):
            assert reply.seq == len(batches)
            batches.append(decode_batch(reply.payload))
        dealer.close(0)
        return batches


async def test_events_of_every_rank_tell_what_it_holds() -> None:
    config = small(
        dp_size=2, gpu_tokens=512, host_tokens=768, storage="memory", prefetch_threshold=64
    )
    async with served(config) as client:
        for turn in range(12):
            ids = [1_000 + 97 * (turn % 5) + i for i in range(150)]
            fields = {"input_ids": ids, "sampling_params": {"max_new_tokens": 20}}
            answer = await client.post("/generate", json=fields)
            assert answer.status_code == 200
        info = (await client.get("/server_info")).json()["kv_events"]
        await until(client, is_idle=True)
        for rank in (await client.get("/debug/residency")).json()["ranks"]:
            assert rank["is_idle"]
            dp_rank = rank["dp_rank"]
            batches = await replayed(info["replay_endpoint_port_base"] + dp_rank)
            assert {batch.dp_rank for batch in batches} == {dp_rank}
            assert isinstance(batches[0].events[0], AllBlocksCleared)
            events: list[KvEvent] = [event for batch in batches for event in batch.events]
            claims = Claims().fold(events)
            assert claims.unknown_removals == 0
            for medium in ("GPU", "CPU_PINNED"):
                assert {str(value) for value in claims.held[medium]} == set(rank[medium])
                assert rank[medium]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_process_cleanly_though_a_stream_is_open(
    number: signal.Signals,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        body = {"prompt": [1], "max_tokens": 10_000, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            process.send_signal(number)
            *_, cut, _, done, _ = [line async for line in lines]
            _, errors = await process.communicate()
    assert json.loads(cut.removeprefix("data: "))["error"]["code"] == 503
    assert done == "data: [DONE]"
    assert (process.returncode, errors) == (0, b"")


async def test_request_without_tokens_is_answered_503_when_the_worker_stops() -> None:
    rates: dict[str, object] = {"prefill_tokens_per_s": 0.001}
    config = small(speed=1.0, engine_model=rates, drain_s=0.0)
    async with asyncio.TaskGroup() as group, client_of(await started(config, group)) as client:
        request = group.create_task(client.post("/generate", json={"input_ids": [1, 2, 3]}))
        await until(client, num_running=1)
        signal.raise_signal(signal.SIGTERM)
        answer = await request
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


async def test_port_that_is_taken_is_an_error() -> None:
    async with served(small()) as client:
        with pytest.raises(OSError, match="in use"):
            await serve_worker(small(port=client.base_url.port))
        info = (await client.get("/server_info")).json()["kv_events"]
        with pytest.raises(EventPortError):
            await serve_worker(small(events_port=info["endpoint_port_base"]))


async def test_tokenizer_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PromptModelError, match="tokenizer"):
        await serve_worker(WorkerConfig(port=0, tokenizer=tmp_path))
