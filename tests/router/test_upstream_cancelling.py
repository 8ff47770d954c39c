"""A request to a worker is cancelled after any number of turns of the loop: no connection is left, nor the count of one."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from router.dialer import Dialer
from router.upstream import UpstreamTimeouts, open_upstream
from tests.router.stub_worker import SSE_HEAD
from tests.router.upstream_client import raw_server, until

FILES = Path(__file__).parents[1] / "data" / "tls"
Loop = Callable[[], asyncio.AbstractEventLoop]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A head, and nothing more until the connection is closed."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(SSE_HEAD)
    await reader.read()


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a worker, and of who trusts it."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(FILES / "worker.pem", FILES / "worker.key")
    return theirs, ssl.create_default_context(cafile=str(FILES / "authority.pem"))


async def cancelled_after(turns: range, *, is_tls: bool) -> None:
    """A request after the other, each cancelled one turn later than the last."""
    loop = asyncio.get_running_loop()
    theirs, ours = contexts() if is_tls else (None, None)
    async with (
        raw_server(serve, tls=theirs) as url,
        open_upstream(UpstreamTimeouts(), Dialer(loop, ours)) as client,
    ):
        named = url.replace("127.0.0.1", "localhost")
        for num_turns in turns:
            sending = asyncio.ensure_future(client.send("GET", named, (), b""))
            for _ in range(num_turns):
                await asyncio.sleep(0)
            sending.cancel()
            results = await asyncio.gather(sending, return_exceptions=True)
            for answer in results:
                if not isinstance(answer, BaseException):
                    answer.close()
        await until(lambda: client.num_open == 0)
        client.check()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_tls", [False, True])
def test_nothing_is_left(loop: Loop, *, is_tls: bool) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(cancelled_after(range(60), is_tls=is_tls))


async def in_the_turn_of_its_making(num_rounds: int) -> None:
    """Connections that come about and are given up in one turn of the loop."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with open_upstream(UpstreamTimeouts()) as client:
            for _ in range(num_rounds):
                sending = [
                    asyncio.ensure_future(client.send("GET", url, (), b"")) for _ in range(8)
                ]
                for turn in range(6):
                    loop.call_soon(sending[turn].cancel)
                    await asyncio.sleep(0)
                for one in sending:
                    one.cancel()
                await asyncio.gather(*sending, return_exceptions=True)
            await until(lambda: client.num_open == 0)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nor_of_many_at_once(loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(in_the_turn_of_its_making(20))
