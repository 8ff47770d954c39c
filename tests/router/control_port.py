"""The control port, in process: its application, and a client of it."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import httpx
from starlette.types import ASGIApp

from router.control_app import ControlParts, control_app
from router.counters import DataCounters
from router.fleet_debug import FleetDebug
from router.metrics import MetricSources
from router.prompt_reader import PromptReader
from router.reach import Reach
from router.ticker import Ticker
from tests.router.brains import TestFleet


@contextmanager
def control_application(
    one: TestFleet,
    token: str | None = None,
    max_body_bytes: int = 10_000,
    reach: Reach | None = None,
) -> Iterator[tuple[ASGIApp, DataCounters]]:
    """The control port's application for this fleet."""
    brains, counters = one.brains, DataCounters()
    with ThreadPoolExecutor(1) as executor:
        parts = ControlParts(
            fleet=FleetDebug(
                one.registry,
                brains.index,
                brains.intake,
                brains.planner,
                brains.shelf,
                one.clock,
                lambda: one.clock.now + 100,
            ),
            metrics=MetricSources(
                counters,
                brains.planner,
                brains.index,
                brains.intake,
                brains.subscriber,
                one.registry,
                Ticker({}),
                one.clock,
            ),
            reader=PromptReader(brains.shelf, executor, counters),
            executor=executor,
            workers_changed=lambda: changes.append(len(one.registry.records())),
            token=token,
            max_body_bytes=max_body_bytes,
            reach=reach,
        )
        changes: list[int] = []
        yield control_app(parts), counters


@asynccontextmanager
async def control(
    one: TestFleet, token: str | None = None, max_body_bytes: int = 10_000
) -> AsyncIterator[tuple[httpx.AsyncClient, DataCounters]]:
    """A client of the control port of this fleet."""
    with control_application(one, token, max_body_bytes) as (app, counters):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, counters
