"""Who is at a port: each kind of thing that is mistaken for a publisher of events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import zmq
from aiohttp import web

from kvroute.tap import Kind, SilentWorkerError, who_is_at, worker_entry, worker_sources
from loadgen import free_ports
from tests.kvroute.command import kvroute
from tests.loadgen.serving import serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def saying(words: bytes) -> AsyncIterator[str]:
    """A server of another kind."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        await reader.read(1_000)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def data_port(request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "not_ready", "detail": "x"}, status=503)


async def control_port(request: web.Request) -> web.StreamResponse:
    if request.path == "/debug/index":
        return web.json_response({"key_spaces": 0})
    return web.json_response({"detail": "Not Found"}, status=404)


async def other(_: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})


SERVERS = [
    (data_port, Kind.DATA_PORT, "is the data port of a kvroute router"),
    (control_port, Kind.CONTROL_PORT, "is the control port of a kvroute router"),
    (other, Kind.HTTP, "is an HTTP server, not a publisher"),
]


@pytest.mark.parametrize(("handler", "kind", "words"), SERVERS)
async def test_servers_of_http(handler: Handler, kind: Kind, words: str) -> None:
    async with serving(handler) as url:
        endpoint = url.replace("http://", "tcp://")
        found = await who_is_at(endpoint)
        assert found.kind is kind
        assert f"{endpoint} {words}" in (found.fault(endpoint) or "")


@pytest.mark.parametrize(
    ("kind", "is_fine"), [(zmq.PUB, True), (zmq.XPUB, True), (zmq.ROUTER, False)]
)
async def test_sockets_of_zeromq(kind: int, is_fine: bool) -> None:
    with zmq.Context() as context, context.socket(kind) as one:
        port = one.bind_to_random_port("tcp://127.0.0.1")
        found = await who_is_at(f"tcp://127.0.0.1:{port}")
        one.setsockopt(zmq.LINGER, 0)
    assert (found.kind is Kind.PUBLISHER) is is_fine
    if not is_fine:
        assert "type ROUTER, not a publisher (engines replay there: --replay)" in (
            found.fault("tcp://x:1") or ""
        )


@pytest.mark.parametrize(
    ("words", "kind"),
    [(b"SSH-2.0-x\r\n", Kind.OTHER), (b"", Kind.SILENT), (b"\xff\x00", Kind.PUBLISHER)],
)
async def test_anything_else(words: bytes, kind: Kind) -> None:
    async with saying(words) as endpoint:
        found = await who_is_at(endpoint)
    assert found.kind is kind
    if kind is Kind.OTHER:
        assert "SSH-2.0" in (found.fault(endpoint) or "")


async def test_nobody() -> None:
    (port,) = free_ports(1)
    found = await who_is_at(f"tcp://127.0.0.1:{port}")
    assert (found.kind, found.detail) == (Kind.NOBODY, "connection refused")
    assert (await who_is_at("tcp://nowhere.invalid:1")).kind is Kind.NOBODY


async def test_the_command_ends_at_once_with_a_hint() -> None:
    async with serving(control_port) as url:
        endpoint = url.replace("http://", "tcp://")
        ended = await kvroute("tap", endpoint)
    assert ended.code == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"kvroute: {endpoint} is the control port of a kvroute router")
    assert ended.stderr.count("\n") == 1


async def test_the_command_waits_for_who_is_not_there_yet_and_says_so() -> None:
    (port,) = free_ports(1)
    ended = await kvroute("tap", f"tcp://127.0.0.1:{port}", "--for", "0.3")
    assert ended.code == 1
    assert f"nobody is at tcp://127.0.0.1:{port} yet: connection refused; waiting" in ended.stderr
    assert ended.stderr.endswith(f"no connection to tcp://127.0.0.1:{port}: connection refused\n")


@pytest.mark.parametrize(("handler", "name"), [(data_port, "data"), (control_port, "control")])
async def test_a_router_is_no_worker(handler: Handler, name: str) -> None:
    async with serving(handler) as url:
        with pytest.raises(SilentWorkerError, match=f"is the {name} port of a kvroute router"):
            await worker_sources(worker_entry(url), replay=None, topic=None, token=None)
