"""A request's body, read whole and bounded."""

from starlette.types import Receive

from router.body_room import BodyRoom, Held


class BodyTooLargeError(Exception):
    """The body has more bytes than are allowed; what was read is dropped."""


class ClientClosedError(Exception):
    """The client closed its connection."""


async def read_body(receive: Receive, limit_bytes: int, room: BodyRoom | None = None) -> bytes:
    """Every byte of the body.

    Holds at most ``limit_bytes`` and one read of the server beyond it.

    Args:
        room: that it takes, if that is counted. The caller releases it, unless this raises.

    Raises:
        BodyTooLargeError: it is longer than the limit.
        NoRoomError: there is no room for it.
        ClientClosedError: the client left before its end.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientClosedError
    first: bytes = message.get("body", b"")
    if len(first) > limit_bytes:
        raise BodyTooLargeError
    with Held(room) as held:
        held.grow(len(first))
        if not message.get("more_body", False):
            return first
        return await _read_rest(receive, bytearray(first), limit_bytes, held)


async def discard_body(receive: Receive, limit_bytes: int) -> None:
    """Read and drop the rest of a refused body, so that the client gets to read the refusal.

    Stops at the body's end, at the limit, or when the client leaves.
    """
    num_bytes = 0
    while num_bytes <= limit_bytes:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if not message.get("more_body", False):
            return


async def _read_rest(receive: Receive, body: bytearray, limit_bytes: int, held: Held) -> bytes:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientClosedError
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise BodyTooLargeError
        held.grow(len(body))
        if not message.get("more_body", False):
            return bytes(body)
