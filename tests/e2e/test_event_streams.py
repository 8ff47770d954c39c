"""Event streams of a real router process: engines that connect to it, and connections that go silent."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from protocol import BlockStored, EventBatch, encode_batch
from tests.indexer.loopback import Changes
from tests.indexer.raw_publisher import RawPublisher, buffered
from tests.indexer.test_subscriber_listening import free_endpoint
from tests.router.stub_engine import StubEngine, stub_engine

pytestmark = pytest.mark.e2e


def batches(first: int, stamp: float = 0.0) -> list[tuple[int, bytes]]:
    """Three batches of a block each, one after the other."""
    made = []
    for seq in range(3):
        tokens = [first + 4 * seq + i for i in range(4)]
        parent = None if seq == 0 else first + seq - 1
        stored = BlockStored([first + seq], parent, tokens, 4, "GPU")
        made.append((seq, encode_batch(EventBatch(stamp + seq, [stored]))))
    return made


class Router:
    """A router process, asked by its control port."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def stream_of(self, engine: StubEngine) -> tuple[dict[str, Any], dict[str, Any]]:
        """The engine's rank 0 and its stream, as ``/debug/workers`` shows them."""
        for worker in (await self.client.get("/debug/workers")).json():
            if worker["url"] == engine.url and worker["ranks"]:
                rank = worker["ranks"][0]
                return rank, rank["stream"] or {}
        return {}, {}

    async def until(
        self, engine: StubEngine, is_so: Callable[[dict[str, Any], dict[str, Any]], bool]
    ) -> None:
        """Wait until rank and stream are so."""
        async with asyncio.timeout(40.0):
            while not is_so(*await self.stream_of(engine)):  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.1)


@asynccontextmanager
async def router(config: dict[str, object], directory: Path) -> AsyncIterator[Router]:
    """``kvroute serve`` with a file."""
    port, control = (int(free_endpoint().rpartition(":")[2]) for _ in range(2))
    path = directory / "kvroute.yaml"
    ports = {"host": "127.0.0.1", "port": port, "control_port": control}
    path.write_text(yaml.safe_dump(config | ports | {"drain": {"window_s": 0}}))
    with (directory / "router.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kvroute", "serve", "--config", str(path), stdout=log, stderr=log
        )
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{control}") as client:
                async with asyncio.timeout(30.0):
                    while True:
                        with contextlib.suppress(httpx.TransportError):
                            await client.get("/health")
                            break
                        await asyncio.sleep(0.05)
                yield Router(client)
        finally:
            process.terminate()
            await process.wait()


def is_exact(rank: dict[str, Any], stream: dict[str, Any]) -> bool:
    return rank.get("trust") == "exact" and rank["gpu_blocks"] == 3 and stream["is_connected"]


async def test_engines_that_connect_to_one_port_of_the_router(tmp_path: Path) -> None:
    """Told apart by topic, replayed by their own sockets; one that was killed and came back is another one."""
    changes, listen = Changes(), free_endpoint()
    async with stub_engine() as one, stub_engine() as other:
        workers = []
        publishers = []
        for number, engine in enumerate((one, other)):
            made = batches(1000 * (number + 1))
            publisher = RawPublisher(changes, connect=[listen], answer=buffered(made))
            publishers.append(publisher)
            events = {
                "listen": listen,
                "replay_endpoint": publisher.replay_endpoint,
                "topic": "kv@{worker}@{model}",
            }
            workers.append({"url": engine.url, "name": f"gpu-{number}", "events": events})
        async with router({"workers": workers}, tmp_path) as running:
            for engine in (one, other):
                await running.until(engine, is_exact)
            restarted = RawPublisher(changes, connect=[listen])
            publishers[0].answer = buffered(batches(5000, stamp=1e6))
            await changes.until(lambda: restarted.num_subscribers > 0)
            restarted.send(*batches(5000, stamp=1e6)[0], topic=b"kv@gpu-0@m")
            await running.until(
                one, lambda _, stream: sum(stream["counters"]["resets"].values()) == 1
            )
            await running.until(one, is_exact)
            rank, stream = await running.stream_of(other)
            assert is_exact(rank, stream)
            assert stream["counters"]["resets"] == {}
            restarted.close()
        for publisher in publishers:
            publisher.close()


async def test_a_connection_that_goes_silent_is_given_up_within_the_documented_bound(
    tmp_path: Path,
) -> None:
    """The process is stopped in its tracks: its machine answers, it does not. It is noticed within 20 s and
    a tick, and what it published meanwhile is heard when it goes on."""
    script = Path(__file__).with_name("silent_publisher.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    endpoint = (await process.stdout.readline()).decode().strip()
    try:
        async with stub_engine() as engine:
            events = {"endpoint": endpoint.replace("127.0.0.1", "localhost")}
            config: dict[str, object] = {"workers": [{"url": engine.url, "events": events}]}
            async with router(config, tmp_path) as running:
                await running.until(engine, lambda _, stream: bool(stream.get("is_connected")))
                assert await process.stdout.readline() == b"subscribed\n"
                process.stdin.write(b"publish\n")
                await running.until(engine, lambda rank, _: rank["gpu_blocks"] == 1)
                process.send_signal(19)  # SIGSTOP
                since = asyncio.get_running_loop().time()
                await running.until(engine, lambda _, stream: not stream["is_connected"])
                assert 10.0 < asyncio.get_running_loop().time() - since < 25.0
                process.send_signal(18)  # SIGCONT
                await running.until(engine, lambda _, stream: bool(stream["is_connected"]))
                assert await process.stdout.readline() == b"subscribed\n"
                process.stdin.write(b"publish\n")
                await running.until(engine, lambda rank, _: rank["gpu_blocks"] == 2)
                rank, _ = await running.stream_of(engine)
                assert rank["trust"] == "exact"
    finally:
        process.kill()
        await process.wait()
