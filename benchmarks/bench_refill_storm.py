"""A refill storm: every worker brings pages back from shared storage at once, and the router hears of all of it.

What: simulated workers on one storage directory, and the router in front, as real processes; calm and storm take
turns. In both, chats go through the router and dry runs of them (``route``: the router alone, no engine) through its
control port, at a fixed rate whatever the answers take. In a storm each worker is sent, straight, prompts that only
storage holds any more: every one is fetched, refilled into host memory, loaded, and pushes out others. Printed for
both: events, batches and bytes a second that the workers publish; lag from publication to application, by the
router's own metric, of the rank that is furthest behind, sampled; the 50th and 99th percentile of requests and of dry
runs at the client, from when they were due. Engines fetch at the rate of the default engine model, in real time. The
router and this client have one core, the workers the rest. Baseline: the calm.
"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from random import Random

import aiohttp
import psutil
import zmq
import zmq.asyncio

from benchmarks.measurement import Measurement, main, measured
from loadgen.fleet import Fleet, FleetSpec, start_fleet
from loadgen.scratch import scratch_directory
from prompt import BUNDLED_MODEL_NAME
from worker.storage import DirectoryStorage
from worker.tree import CacheKey, TreeConfig, TreeCore

PAGE_SIZE = 16
PROMPT_TOKENS = 2_048
HOST_PROMPTS = 16
NUM_PROMPTS = 4 * HOST_PROMPTS
REQUESTS_A_SECOND = 20
STREAMS_A_WORKER = 2
FILL_S = 4.0
"""Until host pools are full."""
WARM_UP_S = 1.0
SAMPLE_S = 0.2
SEED = 1
SPEED = 1


@dataclass(slots=True)
class Phase:
    """What one calm or one storm showed."""

    duration_s: float = 0.0
    request_ms: list[float] = field(default_factory=list)
    route_ms: list[float] = field(default_factory=list)
    lag_ms: list[float] = field(default_factory=list)
    errors: int = 0
    told: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[tuple[str, str], float]:
        """Value by name and unit."""
        found = {}
        for name in ("request", "route", "lag"):
            values = sorted(getattr(self, f"{name}_ms"))
            found[f"{name}_p50", "ms"] = values[len(values) // 2]
            found[f"{name}_p99", "ms"] = values[len(values) * 99 // 100]
        found["errors", "answers"] = self.errors
        for name, number in self.told.items():
            found[name, f"{name.rpartition('_')[2]}/s"] = number / self.duration_s
        return found


class Ear:
    """Counts what the workers publish."""

    def __init__(self, endpoints: Iterable[str]) -> None:
        self.heard: Counter[str] = Counter()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.subscribe(b"")
        for endpoint in endpoints:
            self._socket.connect(endpoint)

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            while True:
                frames = await self._socket.recv_multipart()
                self.heard["batches"] += 1
                self.heard["bytes"] += sum(map(len, frames))
        finally:
            self._context.destroy(linger=0)


def prompts() -> list[CacheKey]:
    """All that the storage holds."""
    rng = Random(SEED)
    return [CacheKey(tuple(rng.choices(range(256), k=PROMPT_TOKENS))) for _ in range(NUM_PROMPTS)]


def fill(directory: Path, keys: Sequence[CacheKey]) -> None:
    """Write every page to storage, as a worker would have."""
    core = TreeCore(TreeConfig(PAGE_SIZE, PAGE_SIZE))
    storage = DirectoryStorage(directory)
    for key in keys:
        storage.put(core.storage_pages(None, key))


def fleet_spec(directory: Path, num_workers: int) -> FleetSpec:
    """Pools that hold a quarter of what is in storage."""
    flags = {
        "--page-size": PAGE_SIZE,
        "--gpu-tokens": 8 * PROMPT_TOKENS,
        "--host-tokens": HOST_PROMPTS * PROMPT_TOKENS,
        "--storage": f"dir:{directory}",
        "--prefetch-policy": "wait_complete",
        "--speed": SPEED,
        "--log-level": "warning",
    }
    return FleetSpec(num_workers, tuple(str(part) for pair in flags.items() for part in pair))


def take_cores() -> None:
    """The router and this process have the first core; the workers, which are all the other children, the rest."""
    first, *rest = sorted(os.sched_getaffinity(0))
    for child in psutil.Process().children():
        os.sched_setaffinity(child.pid, {first} if "serve" in child.cmdline() else rest or {first})
    os.sched_setaffinity(0, {first})


@asynccontextmanager
async def beside(*works: Awaitable[object]) -> AsyncGenerator[None, None]:
    """Run works in the background; cancelled in the end. One that fails is heard of then."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


@dataclass(slots=True)
class Stage:
    """The fleet, and what is done with it."""

    fleet: Fleet
    bodies: list[bytes]
    ear: Ear
    numbers: Iterable[int] = field(default_factory=count)

    async def phase(self, duration_s: float, *, is_storm: bool) -> Phase:
        """One calm, or one storm that has begun a moment before."""
        storms = [
            self._storm(url, share)
            for share, url in enumerate(self.fleet.worker_urls * STREAMS_A_WORKER)
            if is_storm
        ]
        phase = Phase()
        async with beside(*storms):
            await asyncio.sleep(WARM_UP_S)
            before, start = await self._told(), time.perf_counter()
            async with beside(self._sample_lag(phase)):
                await self._ask_at_a_rate(phase, duration_s)
            phase.duration_s = time.perf_counter() - start
            phase.told = await self._told()
            phase.told.subtract(before)
        if not is_storm:
            del phase.told["refilled_tokens"]
        return phase

    async def _storm(self, url: str, share: int) -> None:
        """One prompt after the other; each comes again when the host pool has lost it."""
        first = share * NUM_PROMPTS // (len(self.fleet.worker_urls) * STREAMS_A_WORKER)
        for body in cycle(self.bodies[first:] + self.bodies[:first]):
            await self._post(f"{url}/generate", body)

    async def _ask_at_a_rate(self, phase: Phase, duration_s: float) -> None:
        router, control = self.fleet.router_url, self.fleet.control_url
        interval, start = 1 / REQUESTS_A_SECOND, time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for index, number in zip(
                range(int(duration_s * REQUESTS_A_SECOND)), self.numbers, strict=False
            ):
                due = start + index * interval
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                chat = _chat(number)
                group.create_task(self._timed(f"{router}/v1/chat/completions", chat, due, phase))
                due += interval / 2
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._timed(f"{control}/debug/route", chat, due, phase))

    async def _timed(self, url: str, body: bytes, due: float, phase: Phase) -> None:
        is_good = await self._post(url, body)
        phase.errors += not is_good
        times_ms = phase.request_ms if url.startswith(self.fleet.router_url) else phase.route_ms
        times_ms.append((time.perf_counter() - due) * 1e3)

    async def _sample_lag(self, phase: Phase) -> None:
        while True:
            values = await self._router_metrics("kvroute_stream_lag_seconds")
            phase.lag_ms.append(max(values) * 1e3)
            await asyncio.sleep(SAMPLE_S)

    async def _told(self) -> Counter[str]:
        """Counted so far: at our own socket, by the router, by the workers."""
        told = Counter(self.ear.heard)
        told["events"] = int(sum(await self._router_metrics("kvroute_stream_events_total")))
        for name in ("gaps", "losses"):
            values = await self._router_metrics(f"kvroute_stream_{name}_total")
            assert not any(values), f"{name}: the router did not hear everything"
        for url in self.fleet.worker_urls:
            async with self.fleet.session.get(f"{url}/debug/residency") as answer:
                ranks = (await answer.json())["ranks"]
            told["refilled_tokens"] += sum(rank["counters"]["tokens_refilled"] for rank in ranks)
        return told

    async def _router_metrics(self, name: str) -> list[float]:
        async with self.fleet.session.get(f"{self.fleet.control_url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{")]

    async def _post(self, url: str, body: bytes) -> bool:
        headers = {"content-type": "application/json"}
        async with self.fleet.session.post(url, data=body, headers=headers) as answer:
            await answer.read()
            return answer.status == 200


def _chat(number: int) -> bytes:
    rng = Random(number)
    text = " ".join(str(rng.random()) for _ in range(30))
    messages = [{"role": "user", "content": f"{number} {text}"}]
    return json.dumps({"model": BUNDLED_MODEL_NAME, "messages": messages, "max_tokens": 2}).encode()


async def _endpoints(urls: Sequence[str], session: aiohttp.ClientSession) -> list[str]:
    found = []
    for url in urls:
        async with session.get(f"{url}/server_info") as answer:
            events = (await answer.json())["kv_events"]
        found.append(f"tcp://{events['endpoint_host']}:{events['endpoint_port_base']}")
    return found


async def phases(
    num_workers: int, num_rounds: int, duration_s: float
) -> tuple[list[Phase], list[Phase]]:
    """Calms and storms, taking turns over one fleet."""
    keys = prompts()
    sampling = {"max_new_tokens": 1}
    bodies = [
        json.dumps({"input_ids": key.tokens, "sampling_params": sampling}).encode() for key in keys
    ]
    with scratch_directory() as root:
        storage = root / "storage"
        fill(storage, keys)
        async with start_fleet(fleet_spec(storage, num_workers), root) as fleet:
            take_cores()
            ear = Ear(await _endpoints(fleet.worker_urls, fleet.session))
            stage = Stage(fleet, bodies, ear)
            async with beside(ear.run()):
                await stage.phase(FILL_S, is_storm=True)
                calms, storms = [], []
                for _ in range(num_rounds):
                    calms.append(await stage.phase(duration_s, is_storm=False))
                    storms.append(await stage.phase(duration_s, is_storm=True))
    return calms, storms


def rows_of(calms: Sequence[Phase], storms: Sequence[Phase]) -> list[Measurement]:
    """Each figure of the storm after the calm's, with the ratio."""
    rows: list[Measurement] = []
    for name, unit in storms[0].figures():
        peer = None
        if (name, unit) in calms[0].figures():
            peer = measured(f"calm_{name}", unit, [calm.figures()[name, unit] for calm in calms])
            rows.append(peer)
        rows.append(
            measured(f"storm_{name}", unit, [storm.figures()[name, unit] for storm in storms], peer)
        )
    return rows


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    own = os.sched_getaffinity(0)
    try:
        calms, storms = asyncio.run(
            phases(num_workers=3, num_rounds=1, duration_s=2.0)
            if quick
            else phases(num_workers=8, num_rounds=3, duration_s=10.0)
        )
    finally:
        os.sched_setaffinity(0, own)
    return rows_of(calms, storms)


if __name__ == "__main__":
    main(str(__doc__).split(":", 1)[0], run)
