"""One request and its answer on a connection: uvicorn's cycle, with the front door's ways to fail.

An answer that fails before its first byte becomes an error in OpenAI's form. One that has begun is broken
off so that the client can tell: where it has a length or chunks by an end that comes too early, where it
ends with its connection (HTTP/1.0) by a reset.
"""

import asyncio
import logging
import socket
import struct

from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from router.errors import ErrorKind, FrontDoorError

logger = logging.getLogger(__name__)

_BODILESS = frozenset({204, 304})


class FrontDoorCycle(RequestResponseCycle):
    """A request of HTTP/1.1."""

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application to its end, and answer in its place what it leaves unanswered."""
        refusal = FrontDoorError(ErrorKind.INTERNAL, "the router failed on this request")
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            refusal = FrontDoorError(ErrorKind.STOPPING, "the router is stopping")
        except Exception:
            logger.exception("an application failed on a request")
        if not self.response_complete and not self.disconnected:
            if self.response_started:
                self.break_off()
            else:
                await self._refuse(refusal)
        self.on_response = _nothing

    def break_off(self) -> None:
        """End the connection within the answer. What a client does not read is dropped."""
        if self.flow.write_paused:
            self.transport.abort()
        else:
            self.transport.close()
            self.on_response()

    async def _refuse(self, refusal: FrontDoorError) -> None:
        headers = [*refusal.headers(), (b"connection", b"close")]
        await self.send(
            {"type": "http.response.start", "status": refusal.status, "headers": headers}
        )
        await self.send({"type": "http.response.body", "body": refusal.body(), "more_body": False})


class OldClientCycle(FrontDoorCycle):
    """A request of HTTP/1.0, whose client knows no chunks: an answer without a length ends with its
    connection."""

    _ends_by_close = False

    async def send(self, message: ASGISendEvent) -> None:
        """As the base does, but for the body of an answer without a length."""
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            has_body = self.scope["method"] != "HEAD" and message["status"] not in _BODILESS
            if has_body and not names & {b"content-length", b"transfer-encoding"}:
                self.chunked_encoding = False
                self._ends_by_close = True
        elif self._ends_by_close and message["type"] == "http.response.body":
            await self._send_bare(message.get("body", b""), message.get("more_body", False))
            return
        await super().send(message)

    def break_off(self) -> None:
        """Reset the connection, once what was written last is on its way."""
        if self._ends_by_close:
            asyncio.get_running_loop().call_soon(_reset, self.transport)
        else:
            super().break_off()

    async def _send_bare(self, body: bytes, more_body: bool) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.transport.write(body)
        if not more_body:
            self.response_complete = True
            self.message_event.set()
            self.transport.close()
            self.on_response()


def _reset(transport: asyncio.Transport) -> None:
    sock: socket.socket = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _nothing() -> None:
    pass
