"""A fleet on this machine: workers and the router in front of them, as real processes.

    async with start_fleet(FleetSpec(num_workers=4), logs) as fleet:
        fleet.router_url …

Every process is a child with a log of its own; all of them are ended, router first, however the context
is left. The session is closed before the workers are ended, which would wait for its connections.
"""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import aiohttp
import orjson

from loadgen.process import Child

_HOST = "127.0.0.1"
_PORTS = range(20_000, 32_768)
_TRIES_A_PORT = 50


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """What to start.

    Attributes:
        worker_flags: of ``kvroute worker``, the same for each.
        router_flags: of ``kvroute serve``.
        ready_s: within which each process must answer.
    """

    num_workers: int
    worker_flags: tuple[str, ...] = ()
    router_flags: tuple[str, ...] = ()
    ready_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running fleet: base URLs without a trailing slash."""

    router_url: str
    control_url: str
    worker_urls: tuple[str, ...]
    session: aiohttp.ClientSession


@asynccontextmanager
async def start_fleet(spec: FleetSpec, log_dir: Path) -> AsyncGenerator[Fleet, None]:
    """Start the workers, then the router once they answer; yields when the router is ready.

    Raises:
        ChildError: a process ended early or was not ready in time.
    """
    *worker_ports, data_port, control_port = free_ports(spec.num_workers + 2)
    worker_urls = tuple(f"http://{_HOST}:{port}" for port in worker_ports)
    router_url = f"http://{_HOST}:{data_port}"
    config = _router_config(worker_urls, data_port, control_port, log_dir)
    router = Child(
        "router", ["serve", "--config", str(config), *spec.router_flags], log_dir / "router.log"
    )
    async with (
        _all_of(_workers(spec, worker_ports, log_dir)) as workers,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        await _wait_for_all(workers, worker_urls, session, spec.ready_s)
        async with router:
            await router.wait_ready(session, f"{router_url}/ready", spec.ready_s)
            yield Fleet(router_url, f"http://{_HOST}:{control_port}", worker_urls, session)


def _workers(spec: FleetSpec, ports: list[int], log_dir: Path) -> list[Child]:
    return [
        Child(
            f"worker {index}",
            ["worker", "--host", _HOST, "--port", str(port), *spec.worker_flags],
            log_dir / f"worker-{index}.log",
        )
        for index, port in enumerate(ports)
    ]


async def _wait_for_all(
    workers: Sequence[Child], urls: Sequence[str], session: aiohttp.ClientSession, ready_s: float
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for worker, url in zip(workers, urls, strict=True):
                group.create_task(worker.wait_ready(session, f"{url}/health", ready_s))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed


@asynccontextmanager
async def _all_of(children: list[Child]) -> AsyncGenerator[list[Child], None]:
    """Start all; end all at the same time."""
    try:
        for child in children:
            await child.__aenter__()
        yield children
    finally:
        await asyncio.gather(*(child.end() for child in children))


def free_ports(num_ports: int) -> list[int]:
    """TCP ports that were free a moment ago, all different.

    They lie below those that systems hand out by themselves, so no outgoing connection and no socket bound
    to port 0 takes one before it is used. Another program still may; then the child that was to have it
    says so and ends.

    Raises:
        OSError: hardly any port is free.
    """
    candidates = random.sample(_PORTS, min(len(_PORTS), num_ports * _TRIES_A_PORT))
    free = list(islice(filter(_is_free, candidates), num_ports))
    if len(free) < num_ports:
        raise OSError(f"no {num_ports} free ports from {_PORTS.start} to {_PORTS.stop - 1}")
    return free


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _router_config(
    worker_urls: Sequence[str], data_port: int, control_port: int, directory: Path
) -> Path:
    """A file for a router that is ready when all workers are, and ends as soon as it is told to."""
    config = {
        "host": _HOST,
        "port": data_port,
        "control_host": _HOST,
        "control_port": control_port,
        "workers": list(worker_urls),
        "ready": {"min_workers": len(worker_urls)},
        "drain": {"window_s": 0.0, "finish_s": 1.0},
    }
    path = directory / "router.yaml"
    path.write_bytes(orjson.dumps(config))  # JSON is YAML
    return path
