"""The answer to one client, written through ASGI, or straight into its connection where nothing stands between."""

from collections.abc import Sequence

from starlette.types import Send

from router.errors import ErrorKind, FrontDoorError, sse_error
from router.headers import RawHeader, read_answer_head
from router.http_cycle import FrontDoorCycle


class Answer:
    """Writes head and body, and remembers how far it has come. A client that left is written to in vain.

    Attributes:
        refused_as: what it says where it is a refusal of the front door's own.
    """

    __slots__ = (
        "_cycle",
        "_headers",
        "_last_chunk",
        "_send",
        "is_begun",
        "is_finished",
        "refused_as",
        "status",
    )

    def __init__(self, send: Send) -> None:
        self._send = send
        self._cycle = send if isinstance(send, FrontDoorCycle) else None
        self._headers: Sequence[RawHeader] = ()
        self._last_chunk = b""
        self.is_begun = False
        self.is_finished = False
        self.status = 0
        self.refused_as: ErrorKind | None = None

    @property
    def is_direct(self) -> bool:
        """Does nothing stand between here and the connection?"""
        return self._cycle is not None

    @property
    def takes_all(self) -> bool:
        """Can a whole answer be written this moment?"""
        return self._cycle is not None and not self._cycle.flow.write_paused

    async def begin(self, status: int, headers: Sequence[RawHeader]) -> None:
        """Send status and header section, names in lower case."""
        self._note(status, headers)
        if self._cycle is None:
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            return
        await self._cycle.writable()
        self._cycle.begin(status, headers)

    async def write(self, chunk: bytes) -> None:
        """Send a part of the body; waits while the client reads too slowly."""
        self._last_chunk = chunk or self._last_chunk
        await self._pass(chunk, more_body=True)

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last part of the body."""
        self.is_finished = True
        await self._pass(chunk, more_body=False)

    async def whole(self, status: int, headers: Sequence[RawHeader], body: bytes) -> None:
        """Send a whole answer."""
        if self.takes_all:
            self.whole_now(status, headers, body)
        else:
            await self.begin(status, headers)
            await self.finish(body)

    def whole_now(self, status: int, headers: Sequence[RawHeader], body: bytes) -> None:
        """Write a whole answer, in one piece if it is not large. Only where ``takes_all``."""
        assert self._cycle is not None, "asked before"
        self._note(status, headers)
        self.is_finished = True
        self._cycle.whole(status, headers, body)

    async def refuse(self, error: FrontDoorError, more: Sequence[RawHeader] = ()) -> None:
        """Send an answer of the front door's own."""
        self.refused_as = error.kind
        await self.whole(error.status, [*error.headers(), *more], error.body())

    async def break_off(self, error: FrontDoorError, api: str) -> None:
        """Say why a stream ends early, in a last event, where the framing leaves room for it.

        The answer stays unfinished: the server breaks the transfer off, so that the client can tell.
        """
        head = read_answer_head(self._headers, self.status)
        if not head.is_event_stream or head.is_encoded or head.has_length:
            return
        ends_event = not self._last_chunk or self._last_chunk.endswith((b"\n\n", b"\r\n\r\n"))
        event = sse_error(error, api)
        await self.write(event if ends_event else b"\n\n" + event)

    def _note(self, status: int, headers: Sequence[RawHeader]) -> None:
        self.status = status
        self._headers = headers
        self.is_begun = True

    async def _pass(self, chunk: bytes, *, more_body: bool) -> None:
        cycle = self._cycle
        if cycle is None:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": more_body})
            return
        if cycle.flow.write_paused:
            await cycle.writable()
        cycle.write(chunk, more_body=more_body)
