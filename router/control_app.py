"""The control port: workers, decisions, findings, metrics. FastAPI: for people and scripts, not for load.

Every route but ``/health`` and ``/ready`` needs the token where one is configured; a guard before the application sees to that.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.types import ASGIApp

from prompt import Api, MalformedRequestError, view_request
from protocol import WorkerId
from protocol.fault_words import fault_words, first_fault
from router.body import BodyTooLargeError, read_body
from router.config import WorkerEntry
from router.control_guard import ControlGuard
from router.decision_views import DecisionView, DryRunView
from router.errors import ErrorKind, FrontDoorError
from router.fleet_debug import FleetDebug
from router.headers import SESSION_ID
from router.index_routes import index_routes
from router.metrics import MetricSources, scrape
from router.plain_text import plain
from router.prompt_reader import PromptReader, ReadRequest
from router.reach import Reach, ReachError
from router.registry import RegistryFullError, UnknownWorkerError, WorkerExistsError
from router.request_plan import plan_request
from router.views import (
    ErrorView,
    FindingView,
    IndexView,
    NewWorker,
    ReadyView,
    RefusedView,
    WorkerChange,
    WorkerDebugView,
    WorkerView,
    worker_view,
)
from scoring import decision_json, decision_record, decisions_json

_MAX_FAULTS = 16
_MARKS = {
    "messages": Api.CHAT,
    "prompt": Api.COMPLETIONS,
    "text": Api.GENERATE,
    "input_ids": Api.GENERATE,
}
_REQUEST = {
    "required": True,
    "description": "Any request of these APIs.",
    "content": {"application/json": {"schema": {"type": "object", "title": "Request"}}},
}


@dataclass(frozen=True, slots=True)
class ControlParts:
    """What the control port shows and steers.

    Attributes:
        workers_changed: called after a worker was added or removed.
        executor: for reading long prompts.
        reach: where workers that are added may be; None for anywhere.
        max_body_bytes: of a dry run's request.
        why_partial: says of an engine's URL why it cannot serve whole requests, None where nothing is known against
            it; None for nobody who asks.
    """

    fleet: FleetDebug
    metrics: MetricSources
    reader: PromptReader
    executor: Executor
    workers_changed: Callable[[], None]
    token: str | None = None
    max_body_bytes: int = 64 * 1024 * 1024
    reach: Reach | None = None
    why_partial: Callable[[str], Awaitable[str | None]] | None = None


def control_app(parts: ControlParts) -> ASGIApp:
    """The application behind its guard."""
    return ControlGuard(control_api(parts), parts.token, parts.metrics.intruders)


def control_api(parts: ControlParts) -> FastAPI:
    """The application, for whoever may use it."""
    app = FastAPI(title="kvroute control", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.include_router(_probes(parts))
    asks = (
        [] if parts.token is None else [Depends(HTTPBearer(auto_error=False))]
    )  # described, no more
    index = index_routes(parts.fleet, parts.executor, parts.max_body_bytes)
    for routes in (_workers(parts), _debug(parts), index, _decisions(parts), _description(app)):
        app.include_router(routes, dependencies=asks, responses=_refused(401, 403))
    return app


def _refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How a route tells of its refusals in OpenAPI."""
    return {status: {"model": RefusedView} for status in statuses}


async def _refuse(_request: Request, error: Exception) -> Response:
    """422 with each fault's place and kind; what was given is not repeated: it may be large, or no text."""
    assert isinstance(error, RequestValidationError)
    told = [
        {
            "loc": [plain(str(part)) for part in one["loc"]],
            "msg": plain(fault_words({**one, "input": None})),
            "type": one["type"],
        }
        for one in error.errors()[:_MAX_FAULTS]
    ]
    return Response(orjson.dumps({"detail": told}), 422, media_type="application/json")


def _description(app: FastAPI) -> APIRouter:
    routes = APIRouter()

    @routes.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        """Every route, body and answer."""
        return app.openapi()

    return routes


def _probes(parts: ControlParts) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @routes.get("/ready", responses={503: {"model": ReadyView}})
    async def ready(response: Response) -> ReadyView:
        """May load balancers send requests here? 503 if not; the detail says what is awaited."""
        readiness = parts.fleet.registry.readiness()
        response.status_code = 200 if readiness.is_ready else 503
        return ReadyView(is_ready=readiness.is_ready, detail=readiness.detail)

    return routes


def _workers(parts: ControlParts) -> APIRouter:
    routes = APIRouter(prefix="/workers")
    registry, clock = parts.fleet.registry, parts.fleet.clock

    @routes.get("")
    async def list_workers() -> list[WorkerView]:
        """Every worker in short."""
        return [worker_view(record) for record in registry.records()]

    @routes.post("", status_code=201, responses=_refused(400, 409, 413))
    async def add_worker(new: NewWorker) -> WorkerView:
        """Add a worker; it takes part once it has described itself. One that says at once that it does a part of the
        work only is refused; one that does not answer is tried again."""
        try:
            entry = WorkerEntry.model_validate(new.model_dump())
            if parts.reach is not None:
                parts.reach.refuse_worker(*entry.connected_to())
            await _refuse_partial(parts, entry.url)
            record = registry.add(
                WorkerId(entry.worker),
                entry.url,
                clock(),
                entry.named_events(),
                entry.named_pool(),
                entry.max_in_flight,
            )
        except ValidationError as error:
            raise HTTPException(400, plain(first_fault(error))) from error
        except ReachError as error:
            raise HTTPException(400, plain(str(error))) from error
        except (WorkerExistsError, RegistryFullError) as error:
            raise HTTPException(409, str(error)) from error
        parts.workers_changed()
        return worker_view(record)

    @routes.patch("/{worker}", responses=_refused(400, 404, 413))
    async def change_worker(worker: str, change: WorkerChange) -> WorkerView:
        """Give a worker no new requests, or again."""
        try:
            return worker_view(registry.set_draining(WorkerId(worker), is_draining=change.draining))
        except UnknownWorkerError as error:
            raise HTTPException(404, str(error)) from error

    @routes.delete("/{worker}", status_code=204, response_class=Response, responses=_refused(404))
    async def remove_worker(worker: str) -> Response:
        """Forget a worker; what runs on it goes on."""
        try:
            registry.remove(WorkerId(worker))
        except UnknownWorkerError as error:
            raise HTTPException(404, str(error)) from error
        parts.workers_changed()
        return Response(status_code=204)

    return routes


async def _refuse_partial(parts: ControlParts, url: str) -> None:
    why = None if parts.why_partial is None else await parts.why_partial(url)
    if why is not None:
        raise HTTPException(400, plain(why))


def _debug(parts: ControlParts) -> APIRouter:
    routes = APIRouter()

    @routes.get(
        "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    async def metrics() -> Response:
        """Prometheus metrics."""
        text = await scrape(parts.metrics, parts.executor)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    @routes.get("/debug/workers")
    async def workers() -> list[WorkerDebugView]:
        """Every worker in full: ranks, claims by tier, trust, event streams."""
        return parts.fleet.workers()

    @routes.get("/debug/findings")
    async def findings() -> list[FindingView]:
        """Named gaps in what the router can know, with evidence and what to change."""
        return parts.fleet.findings()

    @routes.get("/debug/index")
    async def index() -> IndexView:
        """Totals of the index."""
        return parts.fleet.index_totals()

    return routes


def _decisions(parts: ControlParts) -> APIRouter:
    routes = APIRouter(prefix="/debug")
    planner = parts.fleet.planner

    @routes.get("/decisions", response_model=list[DecisionView])
    async def decisions(limit: Annotated[int, Query(ge=1, le=1_000_000)] = 100) -> Response:
        """The last decisions, newest first; at most as many as the log holds."""
        loop = asyncio.get_running_loop()
        found = planner.decisions(limit)
        return _json(await loop.run_in_executor(parts.executor, decisions_json, found))

    @routes.get(
        "/decisions/{request_id:path}", response_model=DecisionView, responses=_refused(404)
    )
    async def decision(request_id: str) -> Response:
        """The last decision about one request."""
        found = planner.decision(request_id)
        if found is None:
            raise HTTPException(404, "no decision about this request, or it has left the log")
        return _json(decision_json(found))

    @routes.post(
        "/route",
        response_model=DryRunView,
        responses={400: {"model": ErrorView}, 413: {"model": ErrorView}},
        openapi_extra={"requestBody": _REQUEST},
    )
    async def route(
        request: Request,
        api: Api | None = None,
        all_candidates: Annotated[bool, Query(alias="all")] = False,
    ) -> Response:
        """Where a request would go and why: a dry run that books and sends nothing."""
        try:
            body = await read_body(request.receive, parts.max_body_bytes)
            session = request.headers.get(SESSION_ID.decode())
            dry_run = await _dry_run(parts, body, api, session, all_candidates=all_candidates)
            return _json(dry_run)
        except BodyTooLargeError:
            error = FrontDoorError(ErrorKind.BODY_TOO_LARGE, "the request body is too long")
            return Response(error.body(), error.status, media_type="application/json")
        except FrontDoorError as error:
            return Response(error.body(), error.status, media_type="application/json")

    return routes


async def _dry_run(
    parts: ControlParts,
    body: bytes,
    api: Api | None,
    session: str | None,
    *,
    all_candidates: bool,
) -> bytes:
    """Where the request would go; nothing is sent, booked or counted.

    Raises:
        FrontDoorError: the body is no JSON object, or of no API that is known.
    """
    loop = asyncio.get_running_loop()
    known = api
    if api is None or api is Api.OTHER:  # whose bodies nobody else looks at
        marked = await loop.run_in_executor(parts.executor, _api_of_body, body)
        known = api or marked
    if known is None:
        names = ", ".join(_MARKS)
        message = f"name the API in ?api=, the body has none of {names}"
        raise FrontDoorError(ErrorKind.MALFORMED, message)
    read = await parts.reader.read_body(known, body)
    question = plan_request(known, f"dry-run-{uuid.uuid4().hex}", read, time.time(), session)
    decision = parts.fleet.planner.explain(
        question, parts.fleet.clock(), all_candidates=all_candidates
    )
    of_prompt = {
        "unrouted_by": _reason(read),
        "is_cut": read.is_cut,
        "is_approximate": read.is_approximate,
    }
    return orjson.dumps(decision_record(decision) | of_prompt)


def _api_of_body(body: bytes) -> Api | None:
    """What kind of request a body is, by the field that holds its prompt; None where there is none.

    Raises:
        FrontDoorError: the body is no JSON object.
    """
    try:
        fields = view_request(Api.OTHER, body).body
    except MalformedRequestError as error:
        raise FrontDoorError(ErrorKind.MALFORMED, str(error)) from error
    return next((api for name, api in _MARKS.items() if name in fields), None)


def _reason(read: ReadRequest) -> str | None:
    return None if read.unrouted is None else str(read.unrouted)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
