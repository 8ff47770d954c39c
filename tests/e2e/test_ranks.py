"""A worker of several data-parallel ranks behind ``kvroute serve``: one URL suffices, and the chosen rank serves."""

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
NUM_RANKS = 3
FLAGS = ("--page-size", "16", "--gpu-tokens", "8192", "--speed", "50", "--dp-size", str(NUM_RANKS))


@dataclass(frozen=True)
class Ranks:
    """The router's URLs."""

    router: str
    control: str
    session: aiohttp.ClientSession

    async def send(self, path: str, body: dict[str, Any]) -> tuple[int, int, int | None]:
        """The rank that the router names, cached tokens, and the rank that the engine names, where it does."""
        async with self.session.post(f"{self.router}{path}", json=body) as answer:
            assert answer.status == 200, await answer.text()
            told, named = await answer.json(), int(answer.headers["x-kvroute-dp-rank"])
        if path == "/generate":
            meta = told["meta_info"]
            return named, meta["cached_tokens"], meta["dp_rank"]
        return named, told["usage"]["prompt_tokens_details"]["cached_tokens"], None

    async def ranks(self) -> list[dict[str, Any]]:
        """As the router shows them."""
        async with self.session.get(f"{self.control}/debug/workers") as answer:
            (worker,) = await answer.json()
        found: list[dict[str, Any]] = worker["ranks"]
        return found


@asynccontextmanager
async def ranks_of(engine: str, logs: Path) -> AsyncGenerator[Ranks]:
    """The router is told one URL and nothing else."""
    port, data, control = free_ports(3)
    urls = [f"http://127.0.0.1:{one}" for one in (data, control, port)]
    serve = ["serve", "--host", "127.0.0.1", "--port", str(data), "--control-port", str(control)]
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        flags = ["worker", "--engine", engine, "--port", str(port), *FLAGS]
        child = await stack.enter_async_context(Child(engine, flags, logs / "worker.log"))
        await child.wait_ready(session, f"{urls[2]}/health", READY_S)
        serve += ["--worker", urls[2]]
        child = await stack.enter_async_context(Child("router", serve, logs / "router.log"))
        await child.wait_ready(session, f"{urls[0]}/ready", READY_S)
        yield Ranks(urls[0], urls[1], session)


def bodies(number: int) -> dict[str, dict[str, Any]]:
    """By path; prompts of different numbers share nothing."""
    text = f"{number} is a number that no other prompt begins with. " * 12
    return {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}], "max_tokens": 2},
        "/v1/completions": {"prompt": text, "max_tokens": 2},
        "/generate": {"text": f"Again: {text}", "sampling_params": {"max_new_tokens": 2}},
    }


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_the_chosen_rank_serves_on_every_route(tmp_path: Path, engine: str) -> None:
    async with ranks_of(engine, tmp_path) as fleet:
        paths = [path for path in bodies(0) if engine == "sglang" or path != "/generate"]
        served: set[int] = set()
        for number in range(4):
            tasks = [fleet.send(path, bodies(number)[path]) for path in paths]
            first = await asyncio.gather(*tasks)  # at once, so that they spread
            for path, (rank, _, told) in zip(paths, first, strict=True):
                assert told in (None, rank)
                again, cached, engines = await fleet.send(path, bodies(number)[path])
                assert (again, engines in (None, rank)) == (rank, True)
                assert cached >= 16  # as much as the rank itself had
                served.add(rank)
        assert served == set(range(NUM_RANKS))
        shown = await fleet.ranks()
        assert [rank["dp_rank"] for rank in shown] == list(range(NUM_RANKS))
        async with asyncio.timeout(READY_S):
            while not all(rank["gpu_blocks"] for rank in await fleet.ranks()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
