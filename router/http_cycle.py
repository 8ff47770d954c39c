"""One request and its answer on a connection: uvicorn's cycle, with the front door's ways to fail.

An answer that fails before its first byte becomes an error in OpenAI's form. One that has begun is broken
off so that the client can tell: where it has a length or chunks by an end that comes too early, where it
ends with its connection (HTTP/1.0) by a reset.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Iterable

from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from router.errors import ErrorKind, FrontDoorError

logger = logging.getLogger(__name__)

_BODILESS = frozenset({204, 304})
_INTERNAL = (ErrorKind.INTERNAL, "the router failed on this request")
_STOPPING = (ErrorKind.STOPPING, "the router is stopping")


class FrontDoorCycle(RequestResponseCycle):
    """A request of HTTP/1.1."""

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application to its end, and answer in its place what it leaves unanswered."""
        has_failed = True
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            has_failed = False
        except Exception:
            logger.exception("an application failed on a request")
        if not self.response_complete and not self.disconnected:
            if self.response_started:
                self.break_off()
            else:
                await self._refuse(_INTERNAL if has_failed else _STOPPING)
        self.on_response = _nothing

    async def send(self, message: ASGISendEvent) -> None:
        """Write a part of the answer; waits while the client reads too slowly. Names of header fields are in
        lower case.

        Raises:
            RuntimeError: the application breaks the rules of ASGI, of its own header section, or its length.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._write_head(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.response_started:
            self._write_body(message.get("body", b""), more_body=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']!r} comes at the wrong time")

    def _write_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Status line and header section; a body without a length is sent in chunks."""
        lines = [STATUS_LINE[status]]
        says_close = False
        for name, value in headers:
            if name == b"content-length":
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
                says_close = True
            lines.append(b"%s: %s\r\n" % (name, value))
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        has_body = self.scope["method"] != "HEAD" and status not in _BODILESS
        if self.chunked_encoding is None and has_body:
            lines += self._begin_unmeasured()
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
            raise RuntimeError("a header field has a line break")
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(head + b"\r\n")

    def _begin_unmeasured(self) -> list[bytes]:
        """A body without a length begins; what the head says of it."""
        self.chunked_encoding = True
        return [b"transfer-encoding: chunked\r\n"]

    def _write_body(self, body: bytes, *, more_body: bool) -> None:
        if self.response_complete:
            raise RuntimeError("the answer is complete")
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
            if body:
                self.transport.write(b"%x\r\n%s\r\n" % (len(body), body))
            if not more_body:
                self.transport.write(b"0\r\n\r\n")
        else:
            self._write_plain(body)
        if not more_body:
            if self.expected_content_length:
                raise RuntimeError("the answer is shorter than its length")
            self._complete()

    def _write_plain(self, body: bytes) -> None:
        self.expected_content_length -= len(body)
        if self.expected_content_length < 0:
            raise RuntimeError("the answer is longer than its length")
        self.transport.write(body)

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def break_off(self) -> None:
        """End the connection within the answer. What a client does not read is dropped."""
        if self.flow.write_paused:
            self.transport.abort()
        else:
            self.transport.close()
            self.on_response()

    async def _refuse(self, reason: tuple[ErrorKind, str]) -> None:
        refusal = FrontDoorError(*reason)
        headers = [*refusal.headers(), (b"connection", b"close")]
        await self.send(
            {"type": "http.response.start", "status": refusal.status, "headers": headers}
        )
        await self.send({"type": "http.response.body", "body": refusal.body(), "more_body": False})


class OldClientCycle(FrontDoorCycle):
    """A request of HTTP/1.0, whose client knows no chunks: an answer without a length ends with its
    connection."""

    _ends_by_close = False

    def _begin_unmeasured(self) -> list[bytes]:
        self.chunked_encoding = False
        self._ends_by_close = True
        return []

    def _write_plain(self, body: bytes) -> None:
        if self._ends_by_close:
            self.transport.write(body)
        else:
            super()._write_plain(body)

    def break_off(self) -> None:
        """Reset the connection, once what was written last is on its way."""
        if self._ends_by_close:
            asyncio.get_running_loop().call_soon(_reset, self.transport)
        else:
            super().break_off()


def bare_refusal(error: FrontDoorError) -> bytes:
    """A whole answer to what never became a request."""
    fields = b"".join(b"%s: %s\r\n" % field for field in error.headers())
    return STATUS_LINE[error.status] + fields + b"connection: close\r\n\r\n" + error.body()


def _reset(transport: asyncio.Transport) -> None:
    sock: socket.socket = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _nothing() -> None:
    pass
