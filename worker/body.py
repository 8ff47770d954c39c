"""Request bodies, bounded."""

from http import HTTPStatus

from starlette.types import Receive

from worker.api_error import ApiError


class ClientGoneError(Exception):
    """The client left before its request was complete."""


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """Read a whole request body.

    Raises:
        ApiError: 413, longer than ``max_bytes``; the rest is not read.
        ClientGoneError: the connection closed first.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            raise ApiError(status, f"The request body is longer than {max_bytes} bytes.")
        if not message.get("more_body", False):
            return b"".join(parts)
