"""Bytes to a port of the router, and what comes back."""

import asyncio
import json

from router.connections import MAX_HEAD_BYTES, ConnectionLimits
from tests.router.front_door import FrontDoor, WireAnswer, connect
from tests.router.stub_worker import Peer, answering, response

OK = answering(response(b"{}"))
GET = b"GET /x HTTP/1.1\r\nHost: r\r\n\r\n"
BOUND_S = 1.0
BRIEF = ConnectionLimits(head_s=0.2, body_s=0.2, read_s=0.2, keep_alive_s=5)


async def echo_target(peer: Peer) -> None:
    await peer.send(response(f"{peer.request.target} ".encode() + peer.request.body))


async def refused(door: FrontDoor, data: bytes) -> WireAnswer:
    """The answer to these bytes, after which the connection has ended."""
    async with connect(door.port) as client:
        client.writer.write(data)
        answer = await client.answer()
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""
    return answer


def code(answer: WireAnswer) -> object:
    """The error's code."""
    return json.loads(answer.body)["error"]["code"]


HEADS = {
    "one long value": b"GET /x HTTP/1.1\r\nHost: r\r\nx: %s\r\n\r\n" % (b"a" * MAX_HEAD_BYTES),
    "a long target": b"GET /%s HTTP/1.1\r\nHost: r\r\n\r\n" % (b"a" * MAX_HEAD_BYTES),
    "many fields": b"GET /x HTTP/1.1\r\nHost: r\r\n%s\r\n" % (b"x: a\r\n" * (MAX_HEAD_BYTES // 5)),
    "no end": b"GET /x HTTP/1.1\r\nHost: r\r\nx: " + b"a" * (8 * MAX_HEAD_BYTES),
    "a name without end": b"GET /x HTTP/1.1\r\nHost: r\r\n" + b"a" * (2 * MAX_HEAD_BYTES),
}
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n"
