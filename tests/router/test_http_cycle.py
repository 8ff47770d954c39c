"""What an application may do wrong with its answer, and what the client gets then."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from router.connections import ConnectionGuard, ConnectionLimits
from router.http_protocol import FrontDoorProtocol
from router.ports import listen, make_server
from tests.router.front_door import WireClient, connect


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, *, more_body: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more_body}


@asynccontextmanager
async def client_of(messages: Sequence[Message]) -> AsyncIterator[WireClient]:
    """A client of an application that sends these."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async with _port(app) as port, connect(port) as client:
        yield client


@asynccontextmanager
async def _port(app: ASGIApp) -> AsyncIterator[int]:
    guard, state = ConnectionGuard(ConnectionLimits()), ServerState()
    config = make_server(app, guard, grace_s=1).config
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: FrontDoorProtocol(config, state, {}, guard=guard), sock=listen("127.0.0.1", 0)
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)


LENGTH = (b"content-length", b"3")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [body(b"abc")],
        [start((b"x-a", b"1\r\nx-b: 2")), body(b"")],
        [start((b"x-a", b"1\nx-b: 2")), body(b"")],
        [start((b"x-a\r\nx-b", b"1")), body(b"")],
    ],
)
async def test_an_answer_that_cannot_begin_becomes_500(messages: Sequence[Message]) -> None:
    async with client_of(messages) as client:
        await client.send("GET", "/x")
        answer = await client.answer()
        assert (answer.status, answer.values("connection")) == (500, ["close"])
        assert b'"code":"internal_error"' in answer.body
        assert await client.reader.read() == b""


@pytest.mark.parametrize(
    "messages",
    [
        [start(LENGTH), body(b"ab")],
        [start(LENGTH), body(b"ab", more_body=True)],
        [start(LENGTH), body(b"ab", more_body=True), body(b"cd")],
        [start(), body(b"ab", more_body=True)],
        [start(), body(b"ab", more_body=True), start()],
    ],
)
async def test_an_answer_that_fails_on_its_way_is_not_whole(messages: Sequence[Message]) -> None:
    async with client_of(messages) as client:
        await client.send("GET", "/x")
        answer = await client.answer()
        assert (answer.status, answer.is_whole) == (200, False)


@pytest.mark.parametrize(
    ("method", "messages", "sent"),
    [
        ("GET", [start(LENGTH), body(b"abc")], b"abc"),
        ("GET", [start(LENGTH), body(b"a", more_body=True), body(b"bc")], b"abc"),
        ("GET", [start(), body(b"a", more_body=True), body(b"bc")], b"abc"),
        ("GET", [start(), body(b"", more_body=True), body(b"")], b""),
        ("HEAD", [start(LENGTH), body(b"")], b""),
        ("HEAD", [start(), body(b"abc")], b""),
        ("GET", [start(status=204), body(b"")], b""),
        ("GET", [start(status=304), body(b"")], b""),
    ],
)
async def test_framings(method: str, messages: Sequence[Message], sent: bytes) -> None:
    """Each leaves the connection fit for the next request."""
    async with client_of(messages) as client:
        for _ in range(3):
            await client.send(method, "/x")
            answer = await client.answer(method=method)
            assert (answer.body, answer.is_whole) == (sent, True)
