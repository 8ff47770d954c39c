"""A load client that costs little: keep-alive connections that send prepared bytes and count answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools


@dataclass
class _Answer:
    status: int = 0
    size_bytes: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Connection(asyncio.Protocol):
    """One keep-alive connection: a request at a time."""

    def __init__(self) -> None:
        self._answer = _Answer()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._answer.done.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._answer.size_bytes += len(body)

    def on_message_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()
        self._answer.done.set()

    @property
    def is_open(self) -> bool:
        """Can it send another request?"""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> int:
        """Send one request; its status, or 0 where the connection broke."""
        assert self._transport is not None
        self._answer = _Answer()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        await self._answer.done.wait()
        return self._answer.status

    @property
    def size_bytes(self) -> int:
        """Bytes of the last answer's body."""
        return self._answer.size_bytes

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def request_bytes(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """One POST as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", "host: router", "content-type: application/json"]
    lines += [f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def send_all(
    port: int, requests: Sequence[bytes], num_connections: int, least_bytes: int = 0
) -> None:
    """Send every request once, spread over the connections, each waiting for its answer.

    Raises:
        RuntimeError: an answer was not 200, or its body had fewer bytes than ``least_bytes``.
    """
    loop = asyncio.get_running_loop()
    pending = list(reversed(requests))

    async def drain() -> None:
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        try:
            while pending:
                status = await connection.ask(pending.pop())
                if status != 200:
                    raise RuntimeError(f"answered {status}")
                if connection.size_bytes < least_bytes:
                    raise RuntimeError(f"answered {connection.size_bytes} bytes")
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(num_connections):
            group.create_task(drain())
