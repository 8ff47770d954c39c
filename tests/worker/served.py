"""A worker on a real port in this process, stopped as an operator stops it."""

import asyncio
import functools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from prompt import PromptModel, bundled_model_dir
from worker.config import WorkerConfig
from worker.service import serve_worker


def small(**fields: object) -> WorkerConfig:
    """A quick little worker on any ports; ``fields`` go over its own."""
    own = {"port": 0, "page_size": 16, "gpu_tokens": 4_096, "host_tokens": 8_192, "speed": 50.0}
    return WorkerConfig.model_validate(own | fields)


@functools.cache
def bundled_model() -> PromptModel:
    """Loaded once for all workers of this process."""
    return PromptModel.load(bundled_model_dir())


@asynccontextmanager
async def served(config: WorkerConfig) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the running worker."""
    async with asyncio.TaskGroup() as group:
        port = await started(config, group)
        try:
            async with client_of(port) as client:
                yield client
        finally:
            signal.raise_signal(signal.SIGTERM)


async def started(config: WorkerConfig, group: asyncio.TaskGroup) -> int:
    """The port of a worker that serves in a task of ``group``, until a signal comes."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    group.create_task(serve_worker(config, model=bundled_model(), on_ready=ready.set_result))
    return await ready


def client_of(port: int) -> httpx.AsyncClient:
    """A client of a worker on this machine."""
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20)


async def until(client: httpx.AsyncClient, **expected: object) -> dict[str, Any]:
    """Ask until every rank is as expected; the truth of rank 0. A test that waits for ever times out."""
    while True:
        ranks: list[dict[str, Any]] = (await client.get("/debug/residency")).json()["ranks"]
        if all(rank[name] == value for rank in ranks for name, value in expected.items()):
            return ranks[0]
        await asyncio.sleep(0.005)
