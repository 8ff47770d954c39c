"""Before everything else on the data port where requests are logged or traced: begins and ends their records.

    request ─▶ id, trace ─▶ what serves it, by way of the counting ends ─▶ observers

A request's id is settled here once: the client's where that is fit to be passed on, else a new one, which those
who serve it find in its head as if the client had sent it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prompt import Api, api_of_path
from router.connections import REFUSALS, ConnectionEnd
from router.disconnect import ClientConnection
from router.headers import REQUEST_ID, RawHeader, sane_request_id
from router.request_ids import new_ids
from router.request_record import RequestRecord, attached
from router.trace_context import read_context

_PROBES = frozenset({"/health", "/ready"})


class Observer(Protocol):
    """Wants to know of requests. Neither call may raise, wait, or take long."""

    def begun(self, record: RequestRecord, headers: Sequence[RawHeader]) -> None:
        """A request came; names are lower case."""

    def ended(self, record: RequestRecord) -> None:
        """It is over."""


class ObservedApp:
    """The ASGI application.

    Args:
        observers: told of every request but probes of the router's own health.
        clock: monotonic seconds, as all parts count them.
    """

    def __init__(
        self,
        app: ASGIApp,
        observers: Sequence[Observer],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._observers = observers
        self._clock = clock
        self._wall_clock = wall_clock
        self._new_ids = new_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].removesuffix("/") in _PROBES:
            await self._app(scope, receive, send)
            return
        record, watched = self._begin(scope)
        ends = _CountingEnds(record, receive, send, self._clock)
        try:
            await self._app(watched, ends.receive, ends.send)
        except asyncio.CancelledError:
            record.was_stopped = True
            raise
        finally:
            self._end(record, scope)

    def refused(self, end: ConnectionEnd, client: tuple[str, int] | None) -> None:
        """A connection was given up on before a request came of it."""
        address = None if client is None else client[0]
        record = RequestRecord(
            next(self._new_ids), "", "", address, self._clock(), self._wall_clock()
        )
        _refuse(record, end)
        for observer in self._observers:
            observer.begun(record, ())
        self._ended(record)

    def _begin(self, scope: Scope) -> tuple[RequestRecord, Scope]:
        """The record, and the scope in which those who serve the request find it."""
        headers: list[RawHeader] = scope["headers"]
        context = read_context(headers)
        request_id, settled = _settled_id(headers, self._new_ids)
        client, api = scope.get("client"), api_of_path(scope["path"])
        record = RequestRecord(
            request_id=request_id,
            method=scope["method"],
            path=scope["raw_path"].decode("ascii", "replace"),
            address=None if client is None else client[0],
            started_at=self._clock(),
            time=self._wall_clock(),
            trace_id=None if context.parent is None else context.parent.trace_id,
            http_version=scope["http_version"],
            scheme=scope["scheme"],
            route=None if api is Api.OTHER else scope["path"].removesuffix("/"),
            api=api,
        )
        for observer in self._observers:
            observer.begun(record, headers)
        return record, attached(record, {**scope, "headers": settled})

    def _end(self, record: RequestRecord, scope: Scope) -> None:
        connection: ClientConnection = scope["extensions"]["kvroute.connection"]
        if connection.refused_as is not None and record.status is None:
            _refuse(record, connection.refused_as)
        self._ended(record)

    def _ended(self, record: RequestRecord) -> None:
        record.ended_at = self._clock()
        for observer in self._observers:
            observer.ended(record)


class _CountingEnds:
    """What goes by on the way from and to the client."""

    __slots__ = ("_clock", "_receive", "_record", "_send")

    def __init__(
        self, record: RequestRecord, receive: Receive, send: Send, clock: Callable[[], float]
    ) -> None:
        self._record = record
        self._receive = receive
        self._send = send
        self._clock = clock

    async def receive(self) -> Message:
        message = await self._receive()
        self._record.bytes_in += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        record = self._record
        if message["type"] == "http.response.start":
            record.status = message["status"]
        else:
            body = message.get("body", b"")
            record.bytes_out += len(body)
            if body and record.first_byte_at is None:
                record.first_byte_at = self._clock()
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            record.is_finished = True


def _settled_id(headers: list[RawHeader], new: Iterator[str]) -> tuple[str, list[RawHeader]]:
    """The request's id, and a head in which it stands."""
    given = [value for name, value in headers if name == REQUEST_ID]
    known = sane_request_id(given[-1]) if given else None
    if known is not None:
        return known, headers
    request_id = next(new)
    kept = [field for field in headers if field[0] != REQUEST_ID]
    return request_id, [*kept, (REQUEST_ID, request_id.encode())]


def _refuse(record: RequestRecord, end: ConnectionEnd) -> None:
    refusal = REFUSALS.get(end)
    if refusal is not None:
        record.status, record.refusal = refusal.status, refusal.kind
        record.bytes_out = len(refusal.body())
