"""``kvroute serve`` in front of a simulated vLLM and a simulated SGLang of one model, all of them processes."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loadgen.fleet import free_ports
from loadgen.process import Child

pytestmark = pytest.mark.e2e

READY_S = 60.0
FLAGS = ("--page-size", "16", "--gpu-tokens", "8192", "--speed", "50")
ENGINES = ("vllm", "sglang")
PROMPT = "the same words again and again " * 20
CHAT = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4}


@dataclass(frozen=True)
class TwoEngines:
    """Base URLs; ``workers`` by engine."""

    router: str
    control: str
    workers: dict[str, str]
    session: aiohttp.ClientSession

    async def shown(self) -> dict[str, dict[str, Any]]:
        """Workers as the router shows them, by engine."""
        async with self.session.get(f"{self.control}/debug/workers") as answer:
            return {worker["engine"]: worker for worker in await answer.json()}

    async def chat(self, base: str) -> tuple[int, str | None]:
        """Cached tokens, and the worker that the router chose."""
        async with self.session.post(f"{base}/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 200, await answer.text()
            body = await answer.json()
            cached: int = body["usage"]["prompt_tokens_details"]["cached_tokens"]
            return cached, answer.headers.get("x-kvroute-worker")

    async def until_described(self) -> None:
        """Wait until the router knows which engines they are."""
        async with asyncio.timeout(READY_S):
            while set(await self.shown()) != set(ENGINES):  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.05)

    async def until_held(self) -> None:
        """Wait until the router has heard of blocks of both."""
        async with asyncio.timeout(READY_S):
            while not all(map(holds_blocks, (await self.shown()).values())):  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.05)


def holds_blocks(worker: dict[str, Any]) -> bool:
    """Whether some rank of it is known to hold blocks on GPU."""
    return any(rank["gpu_blocks"] for rank in worker["ranks"])


@asynccontextmanager
async def two_engines(logs: Path) -> AsyncGenerator[TwoEngines]:
    """The router is told two URLs and nothing else."""
    *ports, data, control = free_ports(4)
    workers = {
        engine: f"http://127.0.0.1:{port}" for engine, port in zip(ENGINES, ports, strict=True)
    }
    router = f"http://127.0.0.1:{data}"
    serve = ["serve", "--host", "127.0.0.1", "--port", str(data), "--control-port", str(control)]
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for engine, port in zip(ENGINES, ports, strict=True):
            flags = ["worker", "--engine", engine, "--port", str(port), *FLAGS]
            child = Child(engine, flags, logs / f"{engine}.log")
            await stack.enter_async_context(child)
            await child.wait_ready(session, f"{workers[engine]}/health", READY_S)
        for url in workers.values():
            serve += ["--worker", url]
        child = await stack.enter_async_context(Child("router", serve, logs / "router.log"))
        await child.wait_ready(session, f"{router}/ready", READY_S)
        yield TwoEngines(router, f"http://127.0.0.1:{control}", workers, session)


async def test_both_are_discovered_heard_routed_to_and_explained(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as fleet:
        await fleet.until_described()
        await both_are_described_by_themselves(fleet)
        _, first = await fleet.chat(fleet.router)
        cached, second = await fleet.chat(fleet.router)
        assert first == second
        assert cached >= 16
        for url in fleet.workers.values():
            await fleet.chat(url)
        await fleet.until_held()
        cached, _ = await fleet.chat(fleet.router)
        assert cached >= 16
        await both_are_explained(fleet, tmp_path)


async def both_are_described_by_themselves(fleet: TwoEngines) -> None:
    shown = await fleet.shown()
    assert shown["vllm"]["version"] == "0.32.0"
    assert shown["sglang"]["version"] == "0.5.23"
    for worker in shown.values():
        assert worker["block_size"] == 16
        assert worker["model"] == "kvroute-sim"
        assert [rank["dp_rank"] for rank in worker["ranks"]] == [0]


async def both_are_explained(fleet: TwoEngines, directory: Path) -> None:
    path = directory / "decision.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroute", "explain", PROMPT, "--control-url", fleet.control,
        "--json", str(path), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    table, _ = await process.communicate()
    assert process.returncode == 0
    candidates = json.loads(path.read_text())["candidates"]
    assert len(candidates) == 2
    assert all(one["eligible"] and one["gpu_blocks"] > 1 for one in candidates)
    assert len({one["gpu_blocks"] for one in candidates}) == 1
    shown = await fleet.shown()
    for worker in shown.values():
        assert worker["worker"] in {one["worker"] for one in candidates}
    assert table.decode().strip()
