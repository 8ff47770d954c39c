"""The data port: a raw ASGI application that forwards whatever comes to the worker that suits it best.

It answers ``/health``, ``/ready`` and ``/v1/models`` itself; every other path goes on as it came, method,
path, query, body and header order kept. Each request passes once through: admit, read the body, read the
prompt, exchange, count.
"""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from prompt import Api, api_of_path
from router.answer import Answer
from router.body import BodyTooLargeError, ClientClosedError, read_body
from router.body_room import SMALL_BYTES, BodyRoom, NoRoomError
from router.client_head import BARE_MARK
from router.client_keys import ClientKey
from router.client_paths import is_for_clients
from router.counters import Bound, DataCounters
from router.disconnect import ClientConnection, DisconnectWatch
from router.errors import ErrorKind, FrontDoorError
from router.everywhere import ask_everywhere, is_for_all
from router.exchange import Exchange, is_unknown_model
from router.forward import Forward
from router.headers import REQUEST_ID, RawHeader, RequestHead, read_request_head
from router.keepers import SESSION, Keepers
from router.keyed_request import keyed, salted
from router.made_ids import MadeIds
from router.own_routes import Fleet, OwnAnswer, own_answer
from router.prompt_reader import PromptReader, ReadRequest
from router.recorded_relay import recorded
from router.refusal import refuse_unread
from router.relay import Relay
from router.request_ids import new_ids
from router.request_plan import plan_request
from router.request_record import record_of
from scoring.brain import NoCandidateError, TooManyRequestsError
from scoring.decision import Exclusion

logger = logging.getLogger(__name__)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ROUTED_METHODS = frozenset({"POST", "PUT"})  # SGLang takes either at /generate
# Computations: asking twice changes nothing but the load.
_REPEATABLE_PATHS = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/v1/embeddings",
        "/v2/embed",
        "/encode",
        "/v1/score",
        "/score",
        "/v1/rerank",
        "/v2/rerank",
        "/rerank",
        "/pooling",
        "/classify",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/audio/speech",
        "/v1/chat/completions/batch",
        "/v1/messages/count_tokens",
    }
)
_LAST_WORDS_S = 1.0


@dataclass(frozen=True, slots=True)
class DataLimits:
    """At ``max_in_flight`` a request gets 429, and so does a large one at ``max_held_bytes`` of large bodies; beyond
    ``max_body_bytes`` 413."""

    max_body_bytes: int = 64 * 1024 * 1024
    max_in_flight: int = 4096
    max_held_bytes: int = 1 << 30


class DataApp:
    """The ASGI application of the data port. HTTP only: no lifespan, no websockets.

    Attributes:
        counters: of what is served.
        limits: of one request, and of all.
        room: for the bodies of all.
    """

    def __init__(
        self,
        relay: Relay,
        reader: PromptReader,
        fleet: Fleet,
        counters: DataCounters,
        limits: DataLimits,
        keepers: Keepers,
    ) -> None:
        self._relay = relay
        self._reader = reader
        self._fleet = fleet
        self.counters = counters
        self.limits = limits
        self._keepers = keepers
        self.room = BodyRoom(limits.max_held_bytes)
        self._new_ids = new_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the data port speaks HTTP, not {scope['type']}")
        await self.serve(scope, receive, Answer(send))

    async def serve(
        self, scope: Scope, receive: Receive, answer: Answer, key: ClientKey | None = None
    ) -> None:
        """One request; ``key`` is what it came with, None where keys are not asked for."""
        path: str = scope["path"]
        api = api_of_path(path)
        if api is Api.OTHER:
            models = None if key is None else key.models
            own = own_answer(scope["method"], path, self._fleet, models)
            if own is not None:
                await self._answer_own(own, scope, answer)
                return
        counters = self.counters
        counters.in_flight += 1
        outcome: str | None = None
        try:
            outcome = await self._handle(api, scope, receive, answer, key)
        finally:
            counters.in_flight -= 1
            status_class = f"{answer.status // 100}xx" if answer.is_begun else "closed"
            counters.requests[api, outcome or status_class] += 1
            if (record := record_of(scope)) is not None:
                record.refusal = answer.refused_as

    async def _answer_own(self, own: OwnAnswer, scope: Scope, answer: Answer) -> None:
        """Answer a route that ends here, unless this router itself has asked."""
        head = read_request_head(scope["headers"])
        id_header = (REQUEST_ID, (head.request_id or next(self._new_ids)).encode())
        try:
            self._relay.hops.refuse_loops(head.via)
            answer.refused_as = own.refused_as
            await answer.whole(own.status, [*own.headers, id_header], own.body)
        except FrontDoorError as error:
            await answer.refuse(error, [id_header])
        if (record := record_of(scope)) is not None:
            record.refusal = answer.refused_as

    async def _handle(
        self, api: Api, scope: Scope, receive: Receive, answer: Answer, key: ClientKey | None
    ) -> str | None:
        """Serve one request and answer what goes wrong; ``closed`` where the client left first."""
        head = _head_of(scope)
        request_id = head.request_id or next(self._new_ids)
        id_header = (REQUEST_ID, request_id.encode())
        try:
            await self._forward(api, scope, receive, answer, head, request_id, key)
        except _UnreadError as error:
            await refuse_unread(answer, receive, error, [id_header], self.limits.max_body_bytes)
        except FrontDoorError as error:
            await answer.refuse(error, [id_header])
        except NoCandidateError as error:
            await answer.refuse(self._no_candidate(error), [id_header])
        except TooManyRequestsError as error:
            await answer.refuse(FrontDoorError(ErrorKind.OVERLOADED, str(error)), [id_header])
        except ClientClosedError:
            return "closed"
        except asyncio.CancelledError:
            await _stop_short(answer, id_header, api)
            raise
        except Exception:
            self.counters.internal_errors += 1
            logger.exception("request %s failed inside the router", request_id)
            if not answer.is_begun:
                refusal = FrontDoorError(ErrorKind.INTERNAL, "the router failed on this request")
                await answer.refuse(refusal, [id_header])
        return None

    async def _forward(
        self,
        api: Api,
        scope: Scope,
        receive: Receive,
        answer: Answer,
        head: RequestHead,
        request_id: str,
        key: ClientKey | None,
    ) -> None:
        started_at = self._relay.clock()
        connection: ClientConnection = scope["extensions"]["kvroute.connection"]
        body = await self._admit(head, receive, connection, answer)
        try:
            self._relay.hops.refuse_loops(head.via)
            with DisconnectWatch(connection):
                routed = api if scope["method"] in _ROUTED_METHODS else Api.OTHER
                read = await self._reader.read(routed, head, body)
                plan = plan_request(routed, request_id, read, time.time(), head.session)
                made: MadeIds | None = None
                if routed is Api.OTHER or routed is Api.RESPONSES or _is_in_session(read):
                    plan = self._keepers.bound(plan, scope["path"], read.view, started_at)
                    made = self._keepers.made_by(scope["method"], scope["path"])
                forward = Forward(
                    plan=plan,
                    method=scope["method"],
                    target=_target(scope, api),
                    headers=[
                        *head.forwarded,
                        (REQUEST_ID, request_id.encode()),
                        self._relay.hops.field,
                    ],
                    body=body if read.body is None else read.body,
                    may_repeat=_may_repeat(routed, scope),
                    reads_usage=routed is not Api.OTHER,
                    started_at=started_at,
                    means_model=routed is not Api.OTHER or is_for_clients(scope["path"]),
                    made=made,
                )
                if key is not None:
                    forward = keyed(forward, read, key)
                    if key.salt is not None:
                        reader, size_bytes = self._reader, len(body)
                        forward = await reader.off_loop(size_bytes, salted, forward, read, key.salt)
                if routed is Api.OTHER and is_for_all(scope["method"], scope["path"]):
                    urls = [spec.url for spec in self._fleet.specs()]
                    await ask_everywhere(self._relay, forward, urls, answer)
                    return
                record = record_of(scope)
                relay = self._relay if record is None else recorded(self._relay, record)
                await Exchange(relay, forward, answer).run()
        finally:
            self.room.release(len(body))

    async def _admit(
        self, head: RequestHead, receive: Receive, connection: ClientConnection, answer: Answer
    ) -> bytes:
        """The request's body, if there is room for it.

        Raises:
            ClientClosedError: the client left before its end.
        """
        limits, counters = self.limits, self.counters
        if connection.is_surplus:
            raise _UnreadError(ErrorKind.TOO_MANY_CONNECTIONS, "too many connections are open")
        if counters.in_flight > limits.max_in_flight:
            counters.overloaded[Bound.IN_FLIGHT] += 1
            raise _UnreadError(ErrorKind.OVERLOADED, "too many requests are in flight")
        length = head.content_length or 0
        if length <= limits.max_body_bytes:
            running = connection.running
            if running is not None and 0 < length <= SMALL_BYTES and answer.is_direct:
                body = running.take_body()
                if body is not None:
                    return body
            with suppress(BodyTooLargeError):
                return await self._read(receive)
        counters.body_too_large += 1
        message = f"the request body is longer than {limits.max_body_bytes} bytes"
        raise _UnreadError(ErrorKind.BODY_TOO_LARGE, message)

    async def _read(self, receive: Receive) -> bytes:
        try:
            return await read_body(receive, self.limits.max_body_bytes, self.room)
        except NoRoomError as error:
            self.counters.overloaded[Bound.HELD_BYTES] += 1
            message = "the bodies of the requests in flight take all the room there is"
            raise _UnreadError(ErrorKind.OVERLOADED, message) from error

    def _no_candidate(self, error: NoCandidateError) -> FrontDoorError:
        """An unknown model is the client's mistake, but only once all workers are known."""
        model = error.decision.model
        if Exclusion.NOT_KEEPER in error.decision.excluded:
            message = "the worker that keeps what the request is about cannot take it at the moment"
            return FrontDoorError(ErrorKind.NO_WORKER, message)
        if is_unknown_model(error.decision) and self._fleet.is_settled():
            message = f"no worker serves the model {model!r}"
            return FrontDoorError(ErrorKind.MODEL_NOT_FOUND, message, param="model")
        return FrontDoorError(ErrorKind.NO_WORKER, "no worker can take this request at the moment")


class _UnreadError(FrontDoorError):
    """A refusal of a request that still has body bytes on the way."""


async def _stop_short(answer: Answer, id_header: RawHeader, api: Api) -> None:
    """Tell a client that the process stops before its answer is whole."""
    error = FrontDoorError(ErrorKind.STOPPING, "the router is stopping")
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            if not answer.is_begun:
                await answer.refuse(error, [id_header, (b"connection", b"close")])
            elif not answer.is_finished:
                await answer.break_off(error, api)


def _is_in_session(read: ReadRequest) -> bool:
    return read.view is not None and SESSION in read.view.body


def _head_of(scope: Scope) -> RequestHead:
    """What is read in the request's head; known already where the same one came before."""
    connection: ClientConnection = scope["extensions"]["kvroute.connection"]
    running = connection.running
    if running is None or running.known_head is None or running.scope is not scope:
        return read_request_head(scope["headers"])
    return running.known_head


def _target(scope: Scope, api: Api) -> str:
    """Path and query as they came, byte for byte.

    Of a routed path the trailing slash is left out: engines would send the client to themselves without it.
    """
    path: bytes = scope["raw_path"]
    if api is not Api.OTHER:
        path = path.removesuffix(b"/")
    query: bytes = scope["query_string"]
    mark = b"?" if query or BARE_MARK in scope["extensions"] else b""
    return (path + mark + query).decode("ascii")


def _may_repeat(api: Api, scope: Scope) -> bool:
    """Is it harmless to send the request twice? Routed requests compute and change nothing."""
    return (
        api is not Api.OTHER
        or scope["method"] in _SAFE_METHODS
        or scope["path"].removesuffix("/") in _REPEATABLE_PATHS
    )
