"""A client to workers whose pool is checked, servers of single connections, and what waits on them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from router.upstream import (
    Fault,
    Upstream,
    UpstreamAnswer,
    UpstreamError,
    UpstreamTimeouts,
    open_upstream,
)
from tests.router.stub_worker import StubWorker

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def upstream(timeouts: UpstreamTimeouts | None = None) -> AsyncIterator[Upstream]:
    """A client whose pool is sound at the end."""
    async with open_upstream(timeouts or UpstreamTimeouts()) as client:
        yield client
        client.check()


async def body_of(answer: UpstreamAnswer) -> bytes:
    """Read it to its end."""
    body = bytearray()
    while not answer.is_complete:
        body += await answer.read()
    return bytes(body)


async def get(client: Upstream, worker: StubWorker, body: bytes = b"") -> bytes:
    """One request's answer, whole."""
    answer = await client.send("POST", f"{worker.url}/x", (), body)
    try:
        return await body_of(answer)
    finally:
        answer.close()


async def fault_of(awaitable: Awaitable[object]) -> Fault:
    """How it fails."""
    with pytest.raises(UpstreamError) as error:
        await awaitable
    return error.value.fault


@asynccontextmanager
async def raw_server(
    serve: Serve, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serves each connection so; yields its URL."""
    writers: list[asyncio.StreamWriter] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(run, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"http{'s' if tls else ''}://{name}:{port}/"
    finally:
        server.close()
        for writer in writers:
            with suppress(AttributeError):  # of a closed TLS transport of Python 3.11
                writer.transport.abort()
        await asyncio.sleep(0.01)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(5):
        while not is_so():  # noqa: ASYNC110  there is nothing to wait on from outside
            await asyncio.sleep(0.001)


async def until_still(count: Callable[[], int]) -> None:
    """Wait until a number moves no more."""
    last, num_same = count(), 0
    while num_same < 20:
        await asyncio.sleep(0.005)
        num_same = num_same + 1 if count() == last and last else 0
        last = count()
