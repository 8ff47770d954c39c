"""``kvroute serve`` in front of simulated SGLangs: of token pairs, with adapters, and with host memory that only stages."""

import asyncio
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
PAGE = 16
FLAGS = ("--page-size", str(PAGE), "--speed", "50")
PAIRS = (
    "--model-name", "pairs", "--speculative-algorithm", "EAGLE", "--kv-events-format", "dynamo",
    "--lora-paths", "sql=/loras/sql", "--lora-paths", "tone=/loras/tone", "--gpu-tokens", "8192",
)  # fmt: skip
STAGING = (
    "--model-name", "staging", "--hicache-host-memory-mode", "buffer_only", "--gpu-tokens", "512",
    "--prefetch-threshold", "64", "--prefetch-policy", "wait_complete", "--storage",
)  # fmt: skip
IDS = list(range(1_000, 1_000 + 16 * PAGE))
"""Sixteen pages of tokens, and fifteen of pairs, for there is one pair fewer."""


@dataclass(frozen=True)
class Fleet:
    """Base URLs, and one session for all."""

    router: str
    control: str
    staging: str
    session: aiohttp.ClientSession

    async def complete(self, model: str, prompt: list[int]) -> int:
        """Cached tokens of a completion that went through the router."""
        body = {"model": model, "prompt": prompt, "max_tokens": 1}
        answer = await self._posted(f"{self.router}/v1/completions", body)
        cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached

    async def credited(self, model: str, prompt: list[int]) -> tuple[int, int]:
        """Blocks on GPU and on host that the router credits the model's one worker with."""
        body = {"model": model, "prompt": prompt, "max_tokens": 1}
        decision = await self._posted(f"{self.control}/debug/route?api=completions", body)
        (candidate,) = [one for one in decision["candidates"] if one["eligible"]]
        return candidate["gpu_blocks"], candidate["host_pinned_blocks"]

    async def until_credited(self, model: str, prompt: list[int], gpu_blocks: int) -> None:
        """Wait until the events have been heard: so many blocks on GPU, and none on host."""
        async with asyncio.timeout(READY_S):
            while await self.credited(model, prompt) != (gpu_blocks, 0):  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.05)

    async def rank(self) -> dict[str, Any]:
        """What the staging worker truly holds."""
        async with self.session.get(f"{self.staging}/debug/residency") as answer:
            rank: dict[str, Any] = (await answer.json())["ranks"][0]
            return rank

    async def until_staging_is_idle(self) -> None:
        """Wait until all is written that is to be."""
        async with asyncio.timeout(READY_S):
            while not (await self.rank())["is_idle"]:  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.05)

    async def _posted(self, url: str, body: dict[str, object]) -> dict[str, Any]:
        async with self.session.post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()
            parsed: dict[str, Any] = await answer.json()
            return parsed


@asynccontextmanager
async def fleet(directory: Path) -> AsyncGenerator[Fleet]:
    """The router is told two URLs and nothing else."""
    *ports, data, control = free_ports(4)
    workers = [f"http://127.0.0.1:{port}" for port in ports]
    serve = ["serve", "--host", "127.0.0.1", "--port", str(data), "--control-port", str(control)]
    flags = (PAIRS, (*STAGING, f"dir:{directory / 'pages'}"))
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for port, url, own in zip(ports, workers, flags, strict=True):
            command = ["worker", "--port", str(port), *FLAGS, *own]
            child = Child(own[1], command, directory / f"{own[1]}.log")
            await stack.enter_async_context(child)
            await child.wait_ready(session, f"{url}/health", READY_S)
            serve += ["--worker", url]
        child = await stack.enter_async_context(Child("router", serve, directory / "router.log"))
        await child.wait_ready(session, f"http://127.0.0.1:{data}/ready", READY_S)
        control_url = f"http://127.0.0.1:{control}"
        yield Fleet(f"http://127.0.0.1:{data}", control_url, workers[1], session)


async def test_each_mode_is_credited_for_what_it_holds(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        await pairs_are_credited(running)
        await adapters_are_apart(running)
        await staging_is_credited_on_gpu_alone(running)


async def pairs_are_credited(running: Fleet) -> None:
    assert await running.complete("pairs", IDS) == 0
    await running.until_credited("pairs", IDS, 15)
    assert await running.complete("pairs", IDS) == 15 * PAGE


async def adapters_are_apart(running: Fleet) -> None:
    """Of one worker, which holds the prompt for the base model: nothing, until they have been served themselves."""
    for name, others in (("sql", ("tone",)), ("tone", ())):
        assert await running.credited(name, IDS) == (0, 0)
        assert await running.complete(name, IDS) == 0
        await running.until_credited(name, IDS, 15)
        for other in others:
            assert await running.credited(other, IDS) == (0, 0)
    assert await running.complete("sql", [*IDS[:200], 7]) == 12 * PAGE


async def staging_is_credited_on_gpu_alone(running: Fleet) -> None:
    prompt, others = IDS[: 15 * PAGE + 1], [[token + 1_000 * n for token in IDS] for n in (1, 2)]
    assert await running.complete("staging", prompt) == 0
    await running.until_staging_is_idle()
    for other in others:
        assert await running.complete("staging", other) == 0
    await running.until_credited("staging", prompt, 0)
    assert await running.complete("staging", prompt) == 15 * PAGE
    await running.until_credited("staging", prompt, 15)
    rank = await running.rank()
    assert rank["CPU_PINNED"] == []
    assert rank["counters"]["tokens_refilled"] == 15 * PAGE
