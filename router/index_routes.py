"""The index for other programs: a dump for sibling routers, and the queries of Mooncake's conductor."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ValidationError
from starlette.types import Message, Receive, Scope, Send

from indexer.match import Geometry, Prompt
from indexer.prefix_query import HeldPrefix, PrefixQuery
from protocol import BlockKey, TokenRangeError, pack_tokens
from protocol.fault_words import first_fault
from protocol.tiers import Tier
from router.body import BodyTooLargeError, read_body
from router.fleet_debug import FleetDebug
from router.index_dump import dump_index
from router.plain_text import plain
from router.query_views import HashQuery, PrefixBody, QueryAnswer, TokenQuery
from router.views import RefusedView

logger = logging.getLogger(__name__)

_MAX_DUMPS = 8
_STALL_S = 10.0
_WHOLE_S = 600.0  # of one dump: 10^7 claims take about a minute
_U64 = (1 << 64) - 1
_MEDIA = {Tier.GPU: "GPU", Tier.HOST: "CPU", Tier.STORAGE: "DISK"}
_DUMP: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-ndjson": {}}},
    503: {"model": RefusedView},
}
Q = TypeVar("Q", bound=PrefixBody)


def index_routes(
    fleet: FleetDebug,
    executor: Executor,
    max_body_bytes: int,
    *,
    max_dumps: int = _MAX_DUMPS,
    stall_s: float = _STALL_S,
) -> APIRouter:
    """The routes.

    Args:
        executor: for long bodies.
        max_dumps: at one time; a further one is refused.
        stall_s: without a line taken that end a dump, as ten minutes in all do.
    """
    routes = APIRouter()
    dumps = asyncio.Semaphore(max_dumps)

    @routes.get("/debug/index/dump", response_class=Response, responses=_DUMP)
    async def dump(worker: str | None = None) -> Response:
        """The index as NDJSON, for a router that starts; at most eight at a time."""
        if dumps.locked():
            raise HTTPException(503, "too many dumps are under way", {"Retry-After": "1"})
        await dumps.acquire()
        return _Dump(fleet, worker, dumps, stall_s)

    @routes.post("/query", **_described(TokenQuery))
    async def query(request: Request) -> Response:
        """How many tokens of a prompt each worker holds, in all and by medium and rank."""
        body = await _body(request, max_body_bytes)
        loop = asyncio.get_running_loop()
        asked, prompt = await loop.run_in_executor(executor, _read_tokens, body)
        prefix = PrefixQuery(
            asked.model,
            asked.adapter,
            asked.cache_salt,
            lambda geometry: prompt.keys(geometry[0], is_eagle=geometry[1]),
            asked.block_size,
        )
        return _answer(asked, fleet.index.query(prefix, fleet.clock()))

    @routes.post("/query_by_hash", **_described(HashQuery))
    async def query_by_hash(request: Request) -> Response:
        """The same for a prompt whose block hashes are known."""
        body = await _body(request, max_body_bytes)
        loop = asyncio.get_running_loop()
        asked = await loop.run_in_executor(executor, _read, HashQuery, body)
        keys = [BlockKey(one & _U64) for one in asked.block_hash or asked.seq_hashes]

        def keys_of(_: Geometry) -> Sequence[BlockKey]:
            return keys

        prefix = PrefixQuery(
            asked.model, asked.adapter, asked.cache_salt, keys_of, asked.block_size
        )
        return _answer(asked, fleet.index.query(prefix, fleet.clock()))

    return routes


def _described(body: type[BaseModel]) -> dict[str, Any]:
    """How a route that reads its body by itself tells of it, and of its answer, in OpenAPI."""
    schema = body.model_json_schema()
    content = {"application/json": {"schema": schema}}
    return {
        "response_model": QueryAnswer,
        "responses": {400: {"model": RefusedView}, 413: {"model": RefusedView}},
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


class _Dump(StreamingResponse):
    """A dump that makes room for another one when it ends, however it does."""

    def __init__(
        self, fleet: FleetDebug, worker: str | None, dumps: asyncio.Semaphore, stall_s: float
    ) -> None:
        lines = dump_index(fleet.index, fleet.intake, fleet.clock, worker)
        super().__init__(lines, media_type="application/x-ndjson")
        self._dumps = dumps
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._dumps.release()

    async def stream_response(self, send: Send) -> None:
        """The lines; broken off where the reader does not take them in time."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._stall_s):
                await send(message)

        try:
            async with asyncio.timeout(_WHOLE_S):
                await super().stream_response(send_in_time)
        except TimeoutError:
            logger.warning("a reader of a dump takes too long: the dump is broken off")


async def _body(request: Request, max_body_bytes: int) -> bytes:
    try:
        return await read_body(request.receive, max_body_bytes)
    except BodyTooLargeError as error:
        raise HTTPException(413, "the request body is too long") from error


def _read(kind: type[Q], body: bytes) -> Q:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise HTTPException(400, plain(first_fault(error, "body"))) from error


def _read_tokens(body: bytes) -> tuple[TokenQuery, Prompt]:
    """The query, and its prompt with the keys at the block size that is asked for."""
    asked = _read(TokenQuery, body)
    try:
        prompt = Prompt(pack_tokens(asked.token_ids), asked.model, asked.adapter, asked.cache_salt)
    except TokenRangeError as error:
        raise HTTPException(400, f"token_ids: {error}") from error
    if asked.block_size is not None:
        prompt.keys(asked.block_size)
    return asked, prompt


def _answer(asked: PrefixBody, found: Sequence[HeldPrefix]) -> Response:
    """Tenant → worker → tokens held: the longest run, by medium, and by rank; see `QueryAnswer`."""
    instances: dict[str, dict[str, Any]] = {}
    for held in found:
        worker = held.rank.worker
        if asked.instance_id not in (None, worker):
            continue
        _add(instances.setdefault(worker, {}), held)
    return Response(orjson.dumps({asked.tenant_id: instances}), media_type="application/json")


def _add(of_worker: dict[str, Any], held: HeldPrefix) -> None:
    tokens = {name: held.on_tier[tier] * held.block_size for tier, name in _MEDIA.items()}
    for name, count in ({"longest_matched": held.matched_tokens} | tokens).items():
        of_worker[name] = max(of_worker.get(name, 0), count)
    of_rank = {
        "DP": held.matched_tokens, "trust": held.trust, "storage_source": held.storage_source,
    }  # fmt: skip
    for name, value in of_rank.items():
        of_worker.setdefault(name, {})[str(held.rank.dp_rank)] = value
