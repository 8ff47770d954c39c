"""Requests to workers over real sockets, on asyncio's event loop and on uvloop."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import uvloop

from router.dialer import Dialer
from router.upstream import (
    Fault,
    UpstreamError,
    UpstreamTimeouts,
    open_upstream,
)
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    answering,
    chunk,
    response,
    stub_worker,
)
from tests.router.upstream_client import (
    body_of,
    fault_of,
    get,
    raw_server,
    until,
    until_still,
    upstream,
)

TLS = Path(__file__).parents[1] / "data" / "tls"
OK = answering(response(b"hello"))


async def test_connections_are_reused() -> None:
    async def script(peer: Peer) -> None:
        kind = len(worker.requests) % 4
        if kind == 0:
            await peer.send(response(b"x" * 300_000))
        elif kind == 1:
            await peer.send(SSE_HEAD + chunk(b"a"))
            await peer.send(chunk(b"b") + LAST_CHUNK)
        elif kind == 2:
            await peer.send(response(b"", status=204, headers=()))
        else:
            await peer.send(response(b"hello"))

    async with stub_worker(script) as worker, upstream() as client:
        for _ in range(100):
            await get(client, worker)
    assert (worker.num_accepts, len(worker.requests)) == (1, 100)


async def test_requests_at_once_have_a_connection_each_and_share_them_later() -> None:
    async with stub_worker(OK) as worker, upstream() as client:
        for _ in range(5):
            bodies = await asyncio.gather(*(get(client, worker) for _ in range(20)))
            assert bodies == [b"hello"] * 20
    assert len(worker.requests) == 100
    assert worker.num_accepts == 20


async def test_a_connection_closed_while_idle_is_not_used() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(response(b"hello"))
        peer.close()
        closed.set()

    closed = asyncio.Event()
    async with stub_worker(script) as worker, upstream() as client:
        for _ in range(3):
            closed.clear()
            assert await get(client, worker) == b"hello"
            await closed.wait()
            await until(lambda: client.num_open == 0)
    assert worker.num_accepts == 3


@pytest.mark.parametrize("resets", [False, True])
async def test_a_connection_that_breaks_in_use_says_so(
    resets: bool,
) -> None:
    async def script(peer: Peer) -> None:
        if len(worker.requests) == 2:
            await peer.send(response(b"hello"))
        elif resets:
            peer.reset()
        else:
            peer.close()

    async with stub_worker(script) as worker, upstream() as client:
        stale = []
        for number in range(3):
            if number == 1:
                assert await get(client, worker) == b"hello"
                continue
            with pytest.raises(UpstreamError) as error:
                await get(client, worker)
            assert error.value.fault is Fault.RESET
            stale.append(error.value.is_stale)
    assert stale == [False, True]
    assert len(worker.requests) == 3


async def test_after_a_stale_connection_comes_a_fresh_one() -> None:
    async def script(peer: Peer) -> None:
        if is_ill:
            peer.close()
        else:
            barrier.append(peer)
            if len(barrier) == 3:
                for one in barrier:
                    await one.send(response(b"hello"))

    is_ill = False
    barrier: list[Peer] = []
    async with stub_worker(script) as worker, upstream() as client:
        await asyncio.gather(*(get(client, worker) for _ in range(3)))
        is_ill = True
        with pytest.raises(UpstreamError) as first:
            await get(client, worker)
        with pytest.raises(UpstreamError) as second:
            await get(client, worker)
    assert (first.value.is_stale, second.value.is_stale) == (True, False)
    assert worker.num_accepts == 4


async def test_large_bodies_pass_both_ways() -> None:
    async def echo(peer: Peer) -> None:
        await peer.send(response(peer.request.body))

    body = bytes(range(256)) * 40_000
    async with stub_worker(echo) as worker, upstream() as client:
        assert await get(client, worker, body) == body
        assert await get(client, worker, body) == body
    assert worker.num_accepts == 1


async def test_an_answer_before_the_body_was_read_comes_through() -> None:
    """The worker reads the head alone, refuses, and reads no more."""
    async with raw_server(refuse_unread) as url, upstream() as client:
        answer = await client.send("POST", url, (), b"x" * (16 << 20))
        assert (answer.status, await body_of(answer)) == (413, b"no")
        await until(lambda: client.num_open == 0)


async def refuse_unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(response(b"no", status=413))
    await reader.read()


async def test_a_slow_reader_stops_the_worker() -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.send(SSE_HEAD)
        while sent < 32 << 20:
            await peer.send(chunk(b"x" * 65_536))
            sent += 65_536
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, upstream() as client:
        answer = await client.send("GET", f"{worker.url}/", (), b"")
        await until_still(lambda: sent)
        assert sent < 24 << 20, "what the sockets hold, and no more"
        assert answer.unread_bytes < 1 << 20
        assert len(await body_of(answer)) == 32 << 20


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200", SSE_HEAD, SSE_HEAD + chunk(b"a")])
async def test_cancelling_closes_the_connection_at_once(begun: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(begun)
        await peer.gone()
        gone.set()

    gone = asyncio.Event()
    async with stub_worker(script) as worker, upstream() as client:
        reading = asyncio.ensure_future(get(client, worker))
        await worker.arrived.acquire()
        await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(1):
            await gone.wait()


@pytest.mark.parametrize("method", ["POST", "HEAD"])
async def test_an_interim_answer_with_a_body_is_none_and_leaves_no_connection(method: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 104 X\r\nContent-Length: 5\r\n\r\nhello")
        await peer.gone()
        gone.set()

    gone = asyncio.Event()
    async with stub_worker(script) as worker, upstream() as client:
        assert await fault_of(client.send(method, f"{worker.url}/", (), b"")) is Fault.MALFORMED
        async with asyncio.timeout(1):
            await gone.wait()
        assert client.num_open == 0


async def test_a_head_that_comes_as_its_reader_is_cancelled_leaves_no_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        await peer.gone()

    def look() -> None:
        """Cancel the reader when the head has come and before it hears of it."""
        if any(one._answer is not None and one._answer.status for one in client._pool._open):
            asked.cancel()
        elif not asked.done():
            loop.call_soon(look)

    loop = asyncio.get_running_loop()
    async with stub_worker(script) as worker, upstream() as client:
        asked = asyncio.ensure_future(client.send("GET", f"{worker.url}/x", (), b""))
        loop.call_soon(look)
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: client.num_open == 0)


async def test_closing_an_answer_closes_its_connection_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"a"))
        await peer.gone()
        gone.set()

    gone = asyncio.Event()
    async with stub_worker(script) as worker, upstream() as client:
        answer = await client.send("GET", f"{worker.url}/", (), b"")
        answer.close()
        async with asyncio.timeout(1):
            await gone.wait()


async def test_no_connection_in_time() -> None:
    """A listener whose queue is full accepts nobody."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        try:
            for filler in fillers:
                filler.settimeout(0)
                filler.connect_ex(address)
            async with upstream(UpstreamTimeouts(connect_s=0.05)) as client:
                url = f"http://127.0.0.1:{address[1]}/"
                assert await fault_of(client.send("GET", url, (), b"")) is Fault.CONNECT
        finally:
            for filler in fillers:
                filler.close()


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 2", SSE_HEAD[:-2], SSE_HEAD, SSE_HEAD + b"5\r\n"]
)
async def test_silence_before_the_first_byte(begun: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(begun)
        await peer.gone()

    timeouts = UpstreamTimeouts(first_byte_s=0.05, idle_s=60)
    async with stub_worker(script) as worker, upstream(timeouts) as client:
        assert await fault_of(get(client, worker)) is Fault.TIMEOUT
        await until(lambda: client.num_open == 0)


async def test_silence_after_the_first_byte() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"a"))
        await peer.gone()

    timeouts = UpstreamTimeouts(first_byte_s=60, idle_s=0.05)
    async with stub_worker(script) as worker, upstream(timeouts) as client:
        assert await fault_of(get(client, worker)) is Fault.TIMEOUT


async def test_a_reader_that_is_away_is_no_silence() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"a"))
        await back.wait()
        await peer.send(chunk(b"b") + LAST_CHUNK)

    back = asyncio.Event()
    timeouts = UpstreamTimeouts(first_byte_s=0.1, idle_s=0.1)
    async with stub_worker(script) as worker, upstream(timeouts) as client:
        answer = await client.send("GET", f"{worker.url}/", (), b"")
        assert await answer.read() == b"a"
        await asyncio.sleep(0.3)
        back.set()
        assert await body_of(answer) == b"b"


async def test_small_writes_are_not_held_back() -> None:
    async with stub_worker(OK) as worker, upstream() as client:
        await get(client, worker)
        (connection,) = client._pool._open
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_worker_at_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with raw_server(answer_once, host="::1") as url, upstream() as client:
        answer = await client.send("GET", url, (), b"")
        body = await body_of(answer)
    assert body.decode() == f"Host: {url.removeprefix('http://').removesuffix('/')}"


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with its Host field."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(response(head.split(b"\r\n")[1]))
    await writer.drain()


@pytest.mark.parametrize(
    ("host", "is_trusted"), [("localhost", True), ("127.0.0.1", True), ("localhost", False)]
)
async def test_a_worker_at_https(host: str, is_trusted: bool) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    names: list[str | None] = []
    served.sni_callback = lambda _sock, name, _context: names.append(name)
    trust = ssl.create_default_context(cafile=str(TLS / "localhost.pem")) if is_trusted else None
    body = b"x" * 1_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response(await reader.readexactly(len(body))))
                await writer.drain()

    async with (
        raw_server(serve, tls=served) as url,
        open_upstream(UpstreamTimeouts(), Dialer(asyncio.get_running_loop(), trust)) as client,
    ):
        named = url.replace("127.0.0.1", host)
        if not is_trusted:
            assert await fault_of(client.send("GET", named, (), b"")) is Fault.CONNECT
            return
        for _ in range(3):
            assert await body_of(await client.send("POST", named, (), body)) == body
    assert names == (["localhost"] if host == "localhost" else [None])


Scenario = Callable[[], Coroutine[None, None, None]]
ON_UVLOOP: dict[str, Scenario] = {
    "reuse": test_connections_are_reused,
    "many at once": test_requests_at_once_have_a_connection_each_and_share_them_later,
    "closed while idle": test_a_connection_closed_while_idle_is_not_used,
    "reset in use": partial(test_a_connection_that_breaks_in_use_says_so, resets=True),
    "closed in use": partial(test_a_connection_that_breaks_in_use_says_so, resets=False),
    "fresh": test_after_a_stale_connection_comes_a_fresh_one,
    "large": test_large_bodies_pass_both_ways,
    "early": test_an_answer_before_the_body_was_read_comes_through,
    "slow reader": test_a_slow_reader_stops_the_worker,
    "cancelled before": partial(test_cancelling_closes_the_connection_at_once, b""),
    "cancelled within": partial(test_cancelling_closes_the_connection_at_once, SSE_HEAD),
    "no connection": test_no_connection_in_time,
    "no answer": partial(test_silence_before_the_first_byte, b""),
    "silence": test_silence_after_the_first_byte,
    "no silence": test_a_reader_that_is_away_is_no_silence,
    "small writes": test_small_writes_are_not_held_back,
    "ipv6": test_a_worker_at_ipv6,
    "https": partial(test_a_worker_at_https, "localhost", is_trusted=True),
    "https, untrusted": partial(test_a_worker_at_https, "localhost", is_trusted=False),
}


@pytest.mark.parametrize("scenario", ON_UVLOOP.values(), ids=ON_UVLOOP.keys())
def test_uvloop_does_the_same(scenario: Scenario) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
