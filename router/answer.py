"""The answer to one client, written through ASGI."""

from collections.abc import Sequence

from starlette.types import Send

from router.errors import FrontDoorError
from router.headers import RawHeader


class Answer:
    """Writes head and body, and remembers how far it has come. A client that left is written to in vain."""

    __slots__ = ("_send", "is_begun", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_begun = False
        self.status = 0

    async def begin(self, status: int, headers: Sequence[RawHeader]) -> None:
        """Send status and header section."""
        self.is_begun = True
        self.status = status
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, chunk: bytes) -> None:
        """Send a part of the body; waits while the client reads too slowly."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last part of the body."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def whole(self, status: int, headers: Sequence[RawHeader], body: bytes) -> None:
        """Send a whole answer."""
        await self.begin(status, headers)
        await self.finish(body)

    async def refuse(self, error: FrontDoorError, more: Sequence[RawHeader] = ()) -> None:
        """Send an answer of the front door's own."""
        await self.whole(error.status, [*error.headers(), *more], error.body())
