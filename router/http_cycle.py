"""One request and its answer on a connection, as ASGI has it, and a shorter way for who writes without messages.

    application ── messages ──▶ send ─┬─▶ head, pieces, end ──▶ connection
    data port ──── calls ─────────────┘

An answer that fails before its first byte becomes an error in OpenAI's form. One that has begun is broken
off so that the client can tell: where it has a length or chunks by an end that comes too early, where it
ends with its connection (HTTP/1.0) by a reset.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl

from router.errors import ErrorKind, FrontDoorError
from router.headers import RawHeader, RequestHead, names_of, section

logger = logging.getLogger(__name__)

JOINED_BYTES = 64 * 1024
"""Up to here head and body are copied into one buffer."""
_BODILESS = frozenset({204, 304})
_INTERNAL = (ErrorKind.INTERNAL, "the router failed on this request")
_STOPPING = (ErrorKind.STOPPING, "the router is stopping")


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINE = {status: _status_line(status) for status in range(100, 600)}


class Carrier(Protocol):
    """The connection that a request came over."""

    transport: asyncio.Transport
    flow: FlowControl
    tasks: set[asyncio.Task[None]]

    def on_response_complete(self) -> None:
        """The answer was sent, or broken off."""


class FrontDoorCycle:
    """A request of HTTP/1.1. Itself the ``send`` of its application.

    Attributes:
        task: in which the application runs.
        known_head: what the front door reads in its head, where that is known.
        body: come, and not yet received.
        more_body: not all of it has come.
        keep_alive: the connection may serve a further request.
        waiting_for_100_continue: the client sends no body before it is told to.
        disconnected: the client has left, or is refused.
        response_started: the answer's head was written.
        response_complete: all of it was.
    """

    __slots__ = (
        "_carrier",
        "_has_news",
        "_is_chunked",
        "_is_head_request",
        "_is_over",
        "_missing_bytes",
        "_news",
        "_transport",
        "body",
        "disconnected",
        "flow",
        "keep_alive",
        "known_head",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "task",
        "waiting_for_100_continue",
    )

    def __init__(
        self, carrier: Carrier, scope: Scope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self._carrier = carrier
        self._transport = carrier.transport
        self.flow = carrier.flow
        self.scope = scope
        self.task: asyncio.Task[None] | None = None
        self.known_head: RequestHead | None = None
        self.body: bytes | bytearray = b""  # one piece as it is, or several in a buffer
        self.more_body = True
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self._has_news = False
        self._news: asyncio.Event | None = None  # where somebody waits for it
        self._is_chunked: bool | None = None  # None until that is known
        self._is_head_request: bool = scope["method"] == "HEAD"
        self._is_over = False
        self._missing_bytes = 0

    async def run(self, app: ASGIApp) -> None:
        """Run the application to its end, and answer in its place what it leaves unanswered."""
        has_failed = True
        try:
            await app(self.scope, self.receive, self)
        except asyncio.CancelledError:
            has_failed = False
        except Exception:  # the supervisor of a request
            logger.exception("an application failed on a request")
        try:
            if not self.response_complete and not self.disconnected:
                if self.response_started:
                    self.break_off()
                else:
                    await self._refuse(_INTERNAL if has_failed else _STOPPING)
        finally:
            self._is_over = True
            if self.task is not None:
                self._carrier.tasks.discard(self.task)

    # The request

    def tell(self) -> None:
        """Something has come, or somebody has left: wake who waits for it."""
        self._has_news = True
        if self._news is not None:
            self._news.set()

    async def receive(self) -> Message:
        """What has come of the body; waits for some, for its end, or for the client's leaving."""
        if self.waiting_for_100_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            while not self._has_news:
                if self._news is None:
                    self._news = asyncio.Event()
                await self._news.wait()
                self._news.clear()
            self._has_news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def add(self, body: bytes) -> None:
        """A piece of the body has come."""
        if not self.body:
            self.body = body
        elif isinstance(self.body, bytes):
            self.body = bytearray(self.body) + body
        else:
            self.body += body
        self.tell()

    def take_body(self) -> bytes | None:
        """The body, in place of receiving it; None where not all of it has come."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body, self.body = bytes(self.body), b""
        self._has_news = False
        return body

    # The answer in messages

    async def __call__(self, message: Message) -> None:
        """Write a part of the answer; waits while the client reads too slowly. Names of header fields are in
        lower case.

        Raises:
            RuntimeError: the application breaks the rules of ASGI, of its own header section, or its length.
        """
        await self.writable()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._transport.write(self._head(message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body" and self.response_started:
            self._write_body(message.get("body", b""), more_body=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']!r} comes at the wrong time")

    # The answer in calls

    async def writable(self) -> None:
        """Wait while the client reads too slowly."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()

    def begin(self, status: int, headers: Sequence[RawHeader]) -> None:
        """Write status line and header section, names in lower case.

        Raises:
            RuntimeError: a field has a line break.
        """
        if not self.disconnected:
            self._transport.write(self._head(status, headers))

    def write(self, body: bytes, *, more_body: bool) -> None:
        """Write a part of the body.

        Raises:
            RuntimeError: the answer has another length than it says.
        """
        if not self.disconnected:
            self._write_body(body, more_body=more_body)

    def whole(self, status: int, headers: Sequence[RawHeader], body: bytes) -> None:
        """Write all of an answer, in one piece if it is not large.

        Raises:
            RuntimeError: a field has a line break, or the body another length than the head says.
        """
        if self.disconnected:
            return
        head = self._head(status, headers)
        rest = self._coded(body, more_body=False)
        if len(rest) <= JOINED_BYTES:
            self._transport.write(head + rest)
        else:
            self._transport.writelines((head, rest))
        self._complete()

    # The rest

    def _head(self, status: int, headers: Sequence[RawHeader]) -> bytes:
        """Status line and header section; a body without a length is sent in chunks."""
        names = names_of(headers)
        if b"content-length" in names:
            self._missing_bytes = int(headers[names.index(b"content-length")][1])
            self._is_chunked = False
        says_close = b"connection" in names and _says_close(headers)
        self.keep_alive &= not says_close
        own = b"" if self.keep_alive or says_close else b"connection: close\r\n"
        if self._is_chunked is None and not self._is_head_request and status not in _BODILESS:
            own += self._begin_unmeasured()
        try:
            head = b"%b%b%b\r\n" % (STATUS_LINE[status], section(headers), own)
        except ValueError as error:
            raise RuntimeError(str(error)) from error
        self.response_started = True
        self.waiting_for_100_continue = False
        return head

    def _begin_unmeasured(self) -> bytes:
        """A body without a length begins; what the head says of it."""
        self._is_chunked = True
        return b"transfer-encoding: chunked\r\n"

    def _write_body(self, body: bytes, *, more_body: bool) -> None:
        if self.response_complete:
            raise RuntimeError("the answer is complete")
        piece = self._coded(body, more_body=more_body)
        if piece:
            self._transport.write(piece)
        if not more_body:
            self._complete()

    def _coded(self, body: bytes, *, more_body: bool) -> bytes:
        """A part of the body as it goes over the wire."""
        if self._is_head_request:
            return b""
        if not self._is_chunked:
            self._count(body, more_body=more_body)
            return body
        piece = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        return piece if more_body else piece + b"0\r\n\r\n"

    def _count(self, body: bytes, *, more_body: bool) -> None:
        """A part of a body that has a length.

        Raises:
            RuntimeError: it has another one.
        """
        self._missing_bytes -= len(body)
        if self._missing_bytes < 0:
            raise RuntimeError("the answer is longer than its length")
        if self._missing_bytes and not more_body:
            raise RuntimeError("the answer is shorter than its length")

    def _complete(self) -> None:
        self.response_complete = True
        self.body = b""  # what was not received does not stop the reading of the rest
        self.tell()
        if not self.keep_alive:
            self._transport.close()
        self._answered()

    def _answered(self) -> None:
        if not self._is_over:
            self._carrier.on_response_complete()

    def break_off(self) -> None:
        """End the connection within the answer. What a client does not read is dropped."""
        if self.flow.write_paused:
            self._transport.abort()
        else:
            self._transport.close()
            self._answered()

    async def _refuse(self, reason: tuple[ErrorKind, str]) -> None:
        refusal = FrontDoorError(*reason)
        await self.writable()
        headers = [*refusal.headers(), (b"connection", b"close")]
        self.whole(refusal.status, headers, refusal.body())


class OldClientCycle(FrontDoorCycle):
    """A request of HTTP/1.0, whose client knows no chunks: an answer without a length ends with its
    connection."""

    __slots__ = ("_ends_by_close",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ends_by_close = False

    def _begin_unmeasured(self) -> bytes:
        self._is_chunked = False
        self._ends_by_close = True
        return b""

    def _count(self, body: bytes, *, more_body: bool) -> None:
        if not self._ends_by_close:
            super()._count(body, more_body=more_body)

    def break_off(self) -> None:
        """Reset the connection, once what was written last is on its way."""
        if self._ends_by_close:
            asyncio.get_running_loop().call_soon(_reset, self._transport)
        else:
            super().break_off()


def bare_refusal(error: FrontDoorError) -> bytes:
    """A whole answer to what never became a request."""
    fields = b"".join(b"%s: %s\r\n" % field for field in error.headers())
    return STATUS_LINE[error.status] + fields + b"connection: close\r\n\r\n" + error.body()


def _says_close(headers: Sequence[RawHeader]) -> bool:
    return any(name == b"connection" and value.lower() == b"close" for name, value in headers)


def _reset(transport: asyncio.Transport) -> None:
    sock: socket.socket = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
