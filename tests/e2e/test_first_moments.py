"""A router that starts in front of a running fleet, one of whose replay sockets hangs.

Eight workers have announced 50,000 blocks each before anybody listened. What is shown is an order, and not a speed:
the seven are known in full while the eighth has not answered at all.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadgen.fleet import free_ports
from protocol import BlockStored, EventBatch, LiveMessage, encode_batch, live_frames
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.router.stub_engine import StubEngine, stub_engine

pytestmark = pytest.mark.e2e

NUM_WORKERS = 8
HANGING = 3
BLOCK_SIZE = 16
BLOCKS_PER_BATCH = 100
NUM_BLOCKS = 50_000
BODY = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 1}


def long_replay(num_blocks: int) -> list[tuple[int, bytes]]:
    """Numbers and payloads of one long chain."""
    buffer: list[tuple[int, bytes]] = []
    parent: int | None = None
    for seq in range(num_blocks // BLOCKS_PER_BATCH):
        hashes = list(range(seq * BLOCKS_PER_BATCH, (seq + 1) * BLOCKS_PER_BATCH))
        tokens = [number for number in hashes for _ in range(BLOCK_SIZE)]
        stored = BlockStored(hashes, parent, tokens, BLOCK_SIZE, "GPU")
        buffer.append((seq, encode_batch(EventBatch(float(seq), [stored], 0))))
        parent = hashes[-1]
    return buffer


@dataclass(frozen=True)
class Running:
    """One worker that has run for a while."""

    engine: StubEngine
    publisher: LoopbackPublisher


@asynccontextmanager
async def fleet(num_blocks: int) -> AsyncGenerator[list[Running]]:
    """Workers that all hold one chain, of which nobody heard live."""
    changes, replay = Changes(), long_replay(num_blocks)
    async with AsyncExitStack() as stack:
        running = []
        for number in range(NUM_WORKERS):
            publisher = LoopbackPublisher(changes, answers=number != HANGING)
            stack.callback(publisher.close)
            publisher.buffer = list(replay)
            live_port, replay_port = publisher.ports
            kv_events = {
                "publisher": "zmq",
                "endpoint_host": "*",
                "endpoint_port_base": live_port,
                "replay_endpoint_port_base": replay_port,
                "topic": "",
                "block_size": BLOCK_SIZE,
                "dp_size": 1,
            }
            engine = await stack.enter_async_context(stub_engine(kv_events=kv_events))
            running.append(Running(engine, publisher))
        yield running


@dataclass(frozen=True)
class Router:
    """A router that has just been started, and a client who asks it from the first moment on.

    Attributes:
        answers: to completions.
    """

    data: str
    control: str
    client: httpx.AsyncClient
    answers: list[httpx.Response]

    async def is_ready(self) -> bool:
        """What the data port says."""
        return (await self.client.get(f"{self.data}/ready")).status_code == 200

    async def ranks(self) -> dict[str, dict[str, Any]]:
        """The rank of each worker that is known."""
        workers = (await self.client.get(f"{self.control}/debug/workers")).json()
        return {one["worker"]: one["ranks"][0] for one in workers if one["ranks"]}

    async def has_refused(self) -> bool:
        """Whether it has told somebody to come back later."""
        return any(answer.status_code == 503 for answer in self.answers)

    async def blocks(self) -> dict[str, int]:
        """Blocks on GPU, by worker."""
        return {name: rank["gpu_blocks"] for name, rank in (await self.ranks()).items()}

    async def is_given_up(self, name: str) -> bool:
        """Whether no replay of the worker is waited for any more."""
        trust: str = (await self.ranks())[name]["trust"]
        return trust == "none"

    async def until(self, is_so: Callable[["Router"], Any]) -> None:
        """Ask for completions until it is so."""
        async with asyncio.timeout(90):
            while True:
                try:
                    answer = await self.client.post(f"{self.data}/v1/completions", json=BODY)
                    self.answers.append(answer)
                    if await is_so(self):
                        return
                except httpx.ConnectError:
                    pass  # not listening yet
                await asyncio.sleep(0.02)


@asynccontextmanager
async def router(
    workers: list[Running], directory: Path, *, recovery_s: float
) -> AsyncGenerator[Router]:
    """Start one; its requests are answered with 200, or with 503 and a time to come back at."""
    port, control_port = free_ports(2)
    config = directory / "kvroute.yaml"
    config.write_text(
        json.dumps(
            {
                "workers": [one.engine.url for one in workers],
                "port": port,
                "control_port": control_port,
                "ready": {"min_workers": NUM_WORKERS, "recovery_s": recovery_s},
                "drain": {"window_s": 0, "finish_s": 1},
            }
        )
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroute", "serve", "--config", str(config)
    )
    try:
        async with httpx.AsyncClient(timeout=30) as client:
            data, control = (f"http://127.0.0.1:{one}" for one in (port, control_port))
            started = Router(data, control, client, [])
            yield started
    finally:
        process.terminate()
        await process.wait()
    assert {answer.status_code for answer in started.answers} <= {200, 503}
    refused = [answer for answer in started.answers if answer.status_code == 503]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


async def test_a_replay_that_hangs_delays_none_of_the_others(tmp_path: Path) -> None:
    """Nothing but the eighth's own answer can end the wait for it: the bound is far away."""
    async with (
        fleet(NUM_BLOCKS) as workers,
        router(workers, tmp_path, recovery_s=3_600.0) as started,
    ):
        names = [one.engine.name for one in workers]
        stuck = workers[HANGING]
        held = {one.engine.name: NUM_BLOCKS for one in workers if one is not stuck}
        held[stuck.engine.name] = 0

        async def seven_are_whole(router: Router) -> bool:
            return await router.blocks() == held

        await started.until(seven_are_whole)
        assert stuck.publisher.requests, "it was asked, and has not answered"
        trust = {name: rank["trust"] for name, rank in (await started.ranks()).items()}
        assert [trust[name] for name in names if name != stuck.engine.name] == ["exact"] * 7
        assert trust[stuck.engine.name] in ("none", "rebuilding")
        assert not await started.is_ready(), (
            "the eighth is not recovered, and the bound is far away"
        )
        await started.until(lambda router: router.is_given_up(stuck.engine.name))
        assert not await started.is_ready(), "given up, which is no recovery"
        stuck.publisher.answers = True
        last = LiveMessage(b"", *stuck.publisher.buffer[-1])
        stuck.publisher.send(live_frames(last))  # shows what is missing
        await started.until(Router.is_ready)
        assert await started.blocks() == dict.fromkeys(names, NUM_BLOCKS)


async def test_readiness_waits_for_a_replay_that_hangs_no_longer_than_its_bound(
    tmp_path: Path,
) -> None:
    """Nobody can be served before the first worker has said what it is."""
    async with fleet(1_000) as workers:
        for one in workers:
            one.engine.is_healthy = False
        async with router(workers, tmp_path, recovery_s=2.0) as started:
            await started.until(Router.has_refused)
            assert not await started.is_ready()
            for one in workers:
                one.engine.is_healthy = True
            await started.until(Router.is_ready)
            blocks = await started.blocks()
    assert blocks.keys() == {one.engine.name for one in workers}
    assert blocks[workers[HANGING].engine.name] == 0
