"""A router that starts in front of a running fleet, one of whose replay sockets hangs."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from loadgen.fleet import free_ports
from protocol import BlockStored, EventBatch, encode_batch
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.router.stub_engine import StubEngine, stub_engine

pytestmark = pytest.mark.e2e

NUM_WORKERS = 8
HANGING = 3
BLOCK_SIZE = 4
BLOCKS_PER_BATCH = 100
NUM_BATCHES = 20
RECOVERY_S = 2.0
BODY = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 1}


def fill(publisher: LoopbackPublisher, worker: int) -> None:
    """Let the publisher's buffer hold one long chain, of which nobody hears live."""
    parent: int | None = None
    for seq in range(NUM_BATCHES):
        first = (worker * NUM_BATCHES + seq) * BLOCKS_PER_BATCH
        hashes = list(range(first, first + BLOCKS_PER_BATCH))
        tokens = [number for number in hashes for _ in range(BLOCK_SIZE)]
        stored = BlockStored(hashes, parent, tokens, BLOCK_SIZE, "GPU")
        publisher.buffer.append((seq, encode_batch(EventBatch(float(seq), [stored], 0))))
        parent = hashes[-1]


@asynccontextmanager
async def fleet() -> AsyncGenerator[list[StubEngine]]:
    """Engines that have run for a while."""
    changes = Changes()
    async with AsyncExitStack() as stack:
        engines = []
        for number in range(NUM_WORKERS):
            publisher = LoopbackPublisher(changes, answers=number != HANGING)
            stack.callback(publisher.close)
            fill(publisher, number)
            live, replay = publisher.ports
            kv_events = {
                "publisher": "zmq",
                "endpoint_host": "*",
                "endpoint_port_base": live,
                "replay_endpoint_port_base": replay,
                "topic": "",
                "block_size": BLOCK_SIZE,
                "dp_size": 1,
            }
            engines.append(await stack.enter_async_context(stub_engine(kv_events=kv_events)))
        yield engines


@asynccontextmanager
async def router(urls: Sequence[str], directory: Path) -> AsyncGenerator[tuple[str, str]]:
    """A router that has just been started: URLs of its data port and its control port."""
    port, control_port = free_ports(2)
    config = directory / "kvroute.yaml"
    config.write_text(
        json.dumps(
            {
                "workers": list(urls),
                "port": port,
                "control_port": control_port,
                "ready": {"min_workers": NUM_WORKERS, "recovery_s": RECOVERY_S},
                "drain": {"window_s": 0, "finish_s": 1},
            }
        )
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroute", "serve", "--config", str(config)
    )
    try:
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{control_port}"
    finally:
        process.terminate()
        await process.wait()


async def until_ready(client: httpx.AsyncClient, url: str) -> list[httpx.Response]:
    """Ask for a completion from the first moment on until the router is ready; what was answered."""
    answers = []
    async with asyncio.timeout(60):
        while True:
            try:
                answers.append(await client.post(f"{url}/v1/completions", json=BODY))
                if (await client.get(f"{url}/ready")).status_code == 200:
                    return answers
            except httpx.ConnectError:
                pass  # not listening yet
            await asyncio.sleep(0.02)


async def test_one_replay_that_hangs_delays_nobody_and_readiness_within_its_bound(
    tmp_path: Path,
) -> None:
    async with (
        fleet() as engines,
        router([engine.url for engine in engines], tmp_path) as (data, control),
        httpx.AsyncClient() as client,
    ):
        early = await until_ready(client, data)
        workers = (await client.get(f"{control}/debug/workers")).json()
    assert {answer.status_code for answer in early} <= {200, 503}
    refused = [answer for answer in early if answer.status_code == 503]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    held = {engine.name: NUM_BATCHES * BLOCKS_PER_BATCH for engine in engines}
    held[engines[HANGING].name] = 0
    assert {one["worker"]: one["ranks"][0]["gpu_blocks"] for one in workers} == held
