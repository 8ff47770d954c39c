"""The answer to one client, written through ASGI."""

from collections.abc import Sequence

from starlette.types import Send

from router.errors import FrontDoorError
from router.headers import RawHeader


class AnswerTooLongError(Exception):
    """The answer cannot be collected."""


MAX_COLLECTED_BYTES = 64 * 1024 * 1024


class Answer:
    """Writes head and body, and remembers how far it has come. A client that left is written to in vain.

    A client of HTTP/1.0 does not know chunks: an answer without a length is collected for it, up to
    ``MAX_COLLECTED_BYTES``, and sent with one; a longer one stays unfinished.
    """

    __slots__ = ("_collected", "_head", "_knows_chunks", "_send", "is_begun", "status")

    def __init__(self, send: Send, *, knows_chunks: bool = True) -> None:
        self._send = send
        self._knows_chunks = knows_chunks
        self._head: list[RawHeader] | None = None
        self._collected = bytearray()
        self.is_begun = False
        self.status = 0

    async def begin(self, status: int, headers: Sequence[RawHeader]) -> None:
        """Send status and header section."""
        self.status = status
        has_length = any(name == b"content-length" for name, _ in headers)
        if not self._knows_chunks and not has_length and status not in (204, 304):
            self._head = list(headers)
            return
        self._head = None
        self.is_begun = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, chunk: bytes) -> None:
        """Send a part of the body; waits while the client reads too slowly."""
        if self._head is None:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        elif len(self._collected) + len(chunk) <= MAX_COLLECTED_BYTES:
            self._collected += chunk
        else:
            raise AnswerTooLongError

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last part of the body."""
        if self._head is not None:
            await self.write(chunk)
            head, chunk = self._head, bytes(self._collected)
            await self.begin(self.status, [*head, (b"content-length", b"%d" % len(chunk))])
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def whole(self, status: int, headers: Sequence[RawHeader], body: bytes) -> None:
        """Send a whole answer."""
        await self.begin(status, headers)
        await self.finish(body)

    async def refuse(self, error: FrontDoorError, more: Sequence[RawHeader] = ()) -> None:
        """Send an answer of the front door's own."""
        await self.whole(error.status, [*error.headers(), *more], error.body())
