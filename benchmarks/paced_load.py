"""Requests at a steady rate, whatever becomes of the ones before: what a caller waits for each answer.

A request takes an idle connection, or a new one where none is, so that a slow answer delays no other.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from benchmarks.load_client import Connection

MAX_CONNECTIONS = 256


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one batch, in milliseconds."""

    p50_ms: float
    p99_ms: float


def latency_of(waits_s: Sequence[float]) -> Latency:
    """Nearest-rank percentiles."""
    ordered = sorted(waits_s)
    return Latency(*(_nearest(ordered, share) * 1e3 for share in (0.50, 0.99)))


def _nearest(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of all does not exceed."""
    rank = -(-len(ordered) * round(share * 100) // 100)
    return ordered[max(rank, 1) - 1]


async def send_paced(port: int, requests: Sequence[bytes], per_second: float) -> list[float]:
    """Seconds from each request's sending to the end of its answer; 256 connections at most.

    Raises:
        RuntimeError: an answer was not 200, or more requests wait than there may be connections.
    """
    loop = asyncio.get_running_loop()
    idle: list[Connection] = []
    opened: list[Connection] = []
    waits: list[float] = []

    async def ask(request: bytes) -> None:
        if idle:
            connection = idle.pop()
        elif len(opened) < MAX_CONNECTIONS:
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            opened.append(connection)
        else:
            raise RuntimeError(f"{MAX_CONNECTIONS} requests wait at {per_second:.0f} a second")
        begin = perf_counter()
        status = await connection.ask(request)
        waits.append(perf_counter() - begin)
        if status != 200:
            raise RuntimeError(f"answered {status}")
        idle.append(connection)

    try:
        start = loop.time()
        async with asyncio.TaskGroup() as group:
            for number, request in enumerate(requests):
                await asyncio.sleep(max(start + number / per_second - loop.time(), 0))
                group.create_task(ask(request))
    finally:
        for connection in opened:
            connection.close()
    return waits
