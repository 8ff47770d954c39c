"""Heads that come again: what is begun without a parser is what a parser would have begun."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from router.connections import ConnectionGuard, ConnectionLimits
from router.http_protocol import FrontDoorProtocol
from router.ports import make_server
from router.repeated_head import KEPT_BYTES, MAX_UNLIKE, HeadMemory

Heard = tuple[dict[str, Any], bytes]
SAID = ("method", "path", "raw_path", "query_string", "http_version", "headers", "extensions")
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Wire(asyncio.Transport):
    """A client's side that remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.has_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.has_closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.has_closed = True

    abort = close

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    resume_reading = pause_reading


class Port:
    """One connection, and what its application has heard."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.wire = Wire()
        guard = ConnectionGuard(ConnectionLimits())

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(scope, receive, send)

        config = make_server(app, guard, grace_s=1).config
        config.load()
        self.state = ServerState()
        self.connection = FrontDoorProtocol(config, self.state, {}, guard=guard)
        self.connection.connection_made(self.wire)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        said = {name: scope[name] for name in SAID}
        said["extensions"] = sorted(scope["extensions"])
        self.heard.append((said, body))
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"0")],
        }
        await send(start)
        scope.clear()  # as applications may do with theirs
        await send({"type": "http.response.body", "body": b""})

    async def read(self, *pieces: bytes) -> None:
        """They come one after the other."""
        for piece in pieces:
            if not self.wire.has_closed:
                self.connection.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)

    def lose(self) -> None:
        """The client leaves."""
        self.connection.connection_lost(None)


async def alone(data: bytes) -> tuple[list[Heard], bytes]:
    """What becomes of it on a connection of its own."""
    port = Port()
    await port.read(data)
    port.lose()
    return port.heard, port.wire.sent


def request(body: bytes = b"", *fields: bytes, length: bytes | None = None) -> bytes:
    number = b"%d" % len(body) if length is None else length
    lines = [b"POST /v1/x?a=b HTTP/1.1", b"Host: h", *fields, b"Content-Length: " + number]
    return b"\r\n".join([*lines, b"Accept: */*", b"", b""]) + body


FIRST = request(b"abc")
NEXT = [
    FIRST,
    request(b"defg"),
    request(b"x" * 70_000),
    request(b""),
    request(b"abc", length=b"003"),
    request(b"abc", length=b"0000000003"),
    request(b"abc", length=b"+3"),
    request(b"abc", length=b" 3"),
    request(b"abc", length=b"3 "),
    request(b"abc", length=b"0x3"),
    request(b"abc", length=b"-3"),
    request(b"abc", length=b"\xb3"),
    request(b"abc", length=b""),
    request(b"abc", length=b"3, 3"),
    request(b"abc", length=b"99999999999999999999"),
    request(b"abc", length=b"3\r\nTransfer-Encoding: chunked"),
    request(b"abc", length=b"3\r\nContent-Length: 3"),
    request(b"abc", length=b"3\r\nExpect: 100-continue"),
    request(b"abc", length=b"3\n"),
    request(b"abc", b"X: y"),
    request(b"abc").replace(b"POST", b"PUT"),
    request(b"abc").replace(b"HTTP/1.1", b"HTTP/1.0"),
    request(b"abc").replace(b"Host: h", b"Host: other"),
    request(b"abc").replace(b"Accept: */*", b"Connection: close"),
    b"\r\n" + FIRST,
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"nonsense\r\n\r\n",
]


@pytest.mark.parametrize("following", NEXT, ids=range(len(NEXT)))
async def test_what_follows_is_read_as_if_it_came_alone(following: bytes) -> None:
    port = Port()
    await port.read(FIRST, FIRST)
    heard, sent = len(port.heard), len(port.wire.sent)
    assert heard == 2
    await port.read(following)
    assert (port.heard[heard:], port.wire.sent[sent:]) == await alone(following)
    port.lose()


@pytest.mark.parametrize(
    "cuts", [(1,), (len(FIRST) - 1,), (len(FIRST) - 3,), (20, 40), (len(FIRST) + 5,)]
)
async def test_pieces_and_several_at_once_are_parsed(cuts: Sequence[int]) -> None:
    port = Port()
    await port.read(FIRST)
    data, ends = FIRST + request(b"zz"), [0, *cuts]
    pieces = [data[a:b] for a, b in zip(ends, [*ends[1:], len(data)], strict=True)]
    await port.read(*pieces)
    assert [body for _, body in port.heard] == [b"abc", b"abc", b"zz"]
    assert port.wire.sent.count(ANSWER) == 3
    await port.read(FIRST)
    assert len(port.heard) == 4
    port.lose()


bodies = st.binary(max_size=40)
fields = st.sampled_from(
    [b"", b"X-A: 1", b"content-type: application/json", b"x-a: \xff", b"Te: x"]
)
requests = st.builds(request, bodies, fields.map(lambda one: one or b"X: 0"))


@settings(deadline=None)
@given(st.lists(requests, min_size=2, max_size=8))
def test_any_row_of_requests_is_heard_as_each_alone(row: list[bytes]) -> None:
    async def compare() -> None:
        port = Port()
        await port.read(*row)
        apart = [await alone(one) for one in row]
        assert port.heard == [heard for found, _ in apart for heard in found]
        port.lose()

    asyncio.run(compare())


async def test_no_answer_that_is_the_last_is_followed() -> None:
    port = Port()
    await port.read(request(b"abc", b"Connection: close"))
    assert port.wire.has_closed


def scope_of(data: bytes) -> Scope:
    """As a parser finds it."""
    lines = data.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    pairs = [line.split(b":", 1) for line in lines]
    return {"headers": [(name.lower(), value.strip()) for name, value in pairs]}


def test_only_a_known_head_is_found() -> None:
    heads = HeadMemory()
    assert heads.find(FIRST) is None
    heads.remember(FIRST, scope_of(FIRST))
    found = heads.find(request(b"other"))
    assert found is not None
    head, body = found
    assert body == b"other"
    assert dict(head.scope_of(body, {})["headers"])[b"content-length"] == b"5"
    read = head.head_of(body)
    assert (read.content_length, read.forwarded) == (5, [(b"accept", b"*/*")])


@pytest.mark.parametrize(
    "unfit",
    [
        b"\r\n" + FIRST,
        request(b"", b"X: " + b"y" * KEPT_BYTES),
        FIRST + b"more",
        FIRST[:-1],
        FIRST.replace(b"Host: h\r\n", b"Host: h\n"),
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
)
def test_what_is_not_exactly_a_request_is_not_remembered(unfit: bytes) -> None:
    heads = HeadMemory()
    heads.remember(unfit, {**scope_of(FIRST)})
    assert heads.find(unfit) is None
    assert heads.find(FIRST) is None


def test_heads_that_always_differ_are_not_remembered_for_ever() -> None:
    heads = HeadMemory()
    unlike = [request(b"a", b"X: %d" % number) for number in range(MAX_UNLIKE + 1)]
    for one in unlike:
        heads.remember(one, scope_of(one))
    assert [heads.find(one) is not None for one in unlike] == [False] * (MAX_UNLIKE - 1) + [
        True,
        False,
    ]
