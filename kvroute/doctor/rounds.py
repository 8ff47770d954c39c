"""All workers at once: who is meant by the URLs, a visit each, and what shows side by side."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kvroute.doctor.check import Check, CheckName, fault
from kvroute.doctor.fleet import fleet_checks
from kvroute.doctor.pages import Page, Pages, open_client
from kvroute.doctor.report import Examination, Report
from kvroute.doctor.router_view import (
    FINDINGS_PATH,
    WORKERS_PATH,
    RouterView,
    read_router,
    router_checks,
)
from kvroute.doctor.visit import Visit, VisitOptions
from router.shelf import PromptShelf
from router.worker_entry import WorkerEntry

MAX_VISITS = 64
"""Visits under way at once; further workers wait for one to end."""
MAX_WORKERS = 4096
"""Workers of all URLs together; a router's further ones are left out, which is a fault of its report."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What is sent as bearer token: to workers, and to control ports."""

    worker: str | None = None
    control: str | None = None


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How the fleet is looked at.

    Attributes:
        tokenizers: model name → directory, as the router has them.
        tls: for URLs at https; by default the system's authorities are trusted.
        hub_cache: where models are looked for by their hub id; None for nowhere.
    """

    visit: VisitOptions = field(default_factory=VisitOptions)
    keys: Keys = field(default_factory=Keys)
    tokenizers: Mapping[str, Path] = field(default_factory=dict)
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    hub_cache: Path | None = None


async def examine(entries: Sequence[WorkerEntry], options: RoundOptions) -> Examination:
    """Visit every worker that the URLs mean: a router's control port means all workers of the router."""
    page_s, tls = options.visit.page_s, options.tls
    executor = ThreadPoolExecutor(1, "load")
    try:
        async with open_client(options.keys.worker, page_s, tls) as client:
            workers, routers = await _meant(entries, options.keys.control, page_s, tls)
            reports = list(workers.values())
            shelf = PromptShelf(options.tokenizers, hub_cache=options.hub_cache)
            visits = [
                Visit(one, Pages(client, one.url, page_s), shelf, executor, options.visit)
                for one in reports
            ]
            await _all(visits)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    return Examination(reports, routers, tuple(fleet_checks(reports)))


async def _meant(
    entries: Sequence[WorkerEntry], token: str | None, page_s: float, tls: ssl.SSLContext
) -> tuple[dict[str, Report], list[Report]]:
    """An empty report a worker by URL, and a report a router; a worker is meant once."""
    async with (
        open_client(None, page_s, tls) as stranger,
        open_client(token, page_s, tls) as client,
    ):
        asked = [
            (Pages(stranger, entry.url, page_s), Pages(client, entry.url, page_s))
            for entry in entries
        ]
        views = await asyncio.gather(*(_router_at(*pages) for pages in asked))
    workers: dict[str, Report] = {}
    routers: list[Report] = []
    for entry, view in zip(entries, views, strict=True):
        if view is None:
            workers.setdefault(entry.url, Report(entry.worker, entry.url))
            continue
        if isinstance(view, Check):
            routers.append(Report(entry.worker, entry.url, checks=[view]))
            continue
        report = Report(entry.worker, entry.url, checks=list(router_checks(view)))
        routers.append(report)
        for one in view.workers[:MAX_WORKERS]:
            workers[one.url] = Report(
                one.worker,
                one.url,
                endpoints=one.endpoints,
                is_heard=one.is_heard,
                is_listened_for=one.is_listened_for,
            )
        if len(view.workers) > MAX_WORKERS:
            text = f"workers beyond {MAX_WORKERS} are not looked at"
            report.checks.append(fault(CheckName.ROUTER, text, "name them by their URLs"))
    return workers, routers


async def _router_at(stranger: Pages, pages: Pages) -> RouterView | Check | None:
    """The router whose control port this is, or why it does not tell; None where it is none.

    The token is shown to those alone who ask for a control port's.
    """
    page = await stranger.get(WORKERS_PATH)
    if _wants_token(page):
        page = await pages.get(WORKERS_PATH)
        if _wants_token(page):
            change = "give it: --token or KVROUTE_CONTROL_TOKEN"
            return fault(CheckName.ROUTER, "a control port whose token is missing or wrong", change)
    if not page.is_there:
        return None
    return read_router(page, await pages.get(FINDINGS_PATH))


def _wants_token(page: Page) -> bool:
    return page.status == 401 and b"control token" in page.body


async def _all(visits: Sequence[Visit]) -> None:
    room = asyncio.Semaphore(MAX_VISITS)

    async def bounded(visit: Visit) -> None:
        async with room:
            await visit.run()

    async with asyncio.TaskGroup() as group:
        for visit in visits:
            group.create_task(bounded(visit))
