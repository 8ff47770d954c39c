"""A whole router in this process, before stub engines: what its clients, its metrics and its brain say of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

import httpx
from prometheus_client.parser import text_string_to_metric_families

from router.config import load_config
from router.ports import listen
from router.registry import Registry
from router.service import _run
from router.stop_signal import StopSignal
from router.wiring import RouterParts, wired
from scoring import Planner
from tests.router.stub_engine import StubEngine

CHAT = "/v1/chat/completions"
BODY: Mapping[str, object] = MappingProxyType(
    {"model": "m", "messages": [{"role": "user", "content": "hello there, how are you today?"}]}
)

Metrics = Mapping[str, float]


@dataclass
class WholeRouter:
    """A running router.

    Attributes:
        task: ends when the router does.
    """

    parts: RouterParts
    ports: Mapping[str, int]
    data: httpx.AsyncClient
    control: httpx.AsyncClient
    stop_signal: StopSignal
    task: asyncio.Task[None]

    @property
    def registry(self) -> Registry:
        """Of the workers."""
        return self.parts.registry

    @property
    def planner(self) -> Planner:
        """The brain."""
        planner = self.registry._brains.planner
        assert isinstance(planner, Planner)
        return planner

    def stop(self) -> None:
        """As SIGTERM does."""
        self.stop_signal._on_signal()

    async def ready(self) -> None:
        """Wait until it is."""
        async with asyncio.timeout(10):
            while not self.task.done() and (await self.data.get("/ready")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if self.task.done():
            await self.task

    async def ask(self, path: str = CHAT, **more: object) -> httpx.Response:
        """One request, not streamed."""
        return await self.data.post(path, json=dict(BODY) | more)

    async def metrics(self) -> Metrics:
        """Every sample, as ``name{label=value,…}`` without the prefix, labels in order."""
        text = (await self.control.get("/metrics")).text
        return {
            _key(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def settled(self) -> Metrics:
        """Wait until no request is being served; then nothing is booked, awaited or open but idle connections.

        Returns:
            The metrics of that moment.
        """
        busy = ("requests_in_flight", "worker_connections{state=busy}")
        found = await self.until(lambda now: not any(now[one] for one in busy))
        assert found["leases_open"] == 0
        assert not any(found[one] for one in found if one.startswith("rank_in_flight"))
        for load in self.planner.rank_loads(0.0):
            assert (load.in_flight, load.queued_prefill_tokens, load.decode_requests) == (0, 0, 0)
        self.check()
        assert not self.planner.counters().unknown_finishes
        return found

    def check(self) -> None:
        """Everything agrees."""
        self.planner.check()
        self.registry.check()
        assert self.planner.counters().expired == 0

    async def until(self, is_so: Callable[[Metrics], bool]) -> Metrics:
        """Wait until the metrics say so."""
        async with asyncio.timeout(10):
            while not is_so(found := await self.metrics()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found


def total(metrics: Metrics, name: str) -> int:
    """Sum of a counter over its labels."""
    return int(sum(value for key, value in metrics.items() if key.partition("{")[0] == name))


def _key(name: str, labels: Mapping[str, str]) -> str:
    name = name.removeprefix("kvroute_")
    shown = ",".join(f"{label}={labels[label]}" for label in sorted(labels))
    return f"{name}{{{shown}}}" if shown else name


@asynccontextmanager
async def whole_router(*engines: StubEngine, **overrides: object) -> AsyncIterator[WholeRouter]:
    """Serve before these engines, ready; ended in order when the block is left, if not before."""
    settings: dict[str, object] = {
        "workers": [engine.url for engine in engines],
        "ready": {"min_workers": len(engines)},
        "drain": {"window_s": 0.0, "finish_s": 2.0},
    }
    config = load_config(None, settings | overrides, {})
    async with AsyncExitStack() as stack:
        names = config.addresses()
        sockets = {name: stack.enter_context(listen("127.0.0.1", 0)) for name in names}
        ports = {name: sock.getsockname()[1] for name, sock in sockets.items()}
        stop = stack.enter_context(StopSignal())
        parts = await stack.enter_async_context(wired(config))
        task = asyncio.get_running_loop().create_task(_run(parts, config, sockets, stop))
        limits = httpx.Limits(max_connections=None)
        data, control = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{ports[name]}", timeout=20, limits=limits
                )
            )
            for name in ("data", "control")
        ]
        router = WholeRouter(parts, ports, data, control, stop, task)
        try:
            if engines:
                await router.ready()
            yield router
        finally:
            router.stop()
            async with asyncio.timeout(10):
                await task
