"""A worker scripted at socket level: it can misbehave in every way that a byte stream allows."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StubRequest:
    """One request as it came over the wire; header names as sent, in order."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass
class Peer:
    """The router's end, as a script sees it."""

    request: StubRequest
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close with FIN."""
        self.writer.close()

    async def gone(self) -> None:
        """Wait until the router closes its end."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class StubWorker:
    """Serves requests with a script and remembers them."""

    script: Script
    port: int = 0
    host: str = "127.0.0.1"
    requests: list[StubRequest] = field(default_factory=list)
    num_accepts: int = 0
    num_abandoned: int = 0  # requests whose connection the router closed while the script ran
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.num_accepts += 1
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                self.arrived.release()
                await self.script(Peer(request, reader, writer))
                if writer.is_closing():
                    return
        except ConnectionError:
            self.num_abandoned += 1
        finally:
            writer.close()


@asynccontextmanager
async def stub_worker(script: Script, host: str = "127.0.0.1") -> AsyncIterator[StubWorker]:
    """A listening worker; an address of IPv6 in brackets."""
    worker = StubWorker(script, host=host)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(worker.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host.strip("[]"), 0)
    worker.port = server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def response(
    body: bytes = b"",
    *,
    status: int = 200,
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),),
) -> bytes:
    """A whole response with its length."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers)]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def answering(data: bytes) -> Script:
    """A script that sends these bytes."""

    async def script(peer: Peer) -> None:
        await peer.send(data)

    return script


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _read_request(reader: asyncio.StreamReader) -> StubRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    lengths = [int(value) for name, value in headers if name.lower() == "content-length"]
    body = await reader.readexactly(lengths[0]) if lengths else b""
    return StubRequest(method, target, headers, body)
