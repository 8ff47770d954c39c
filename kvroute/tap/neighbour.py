"""Who listens at a TCP port: a publisher of events, or something that was mistaken for one.

    connect ──greeting──▶ ZMTP? ── its socket type ──▶ publisher, or another socket of ZeroMQ
                       └─ else: HTTP? ── kvroute's own routes ──▶ data port, control port, some other server

A few short connections, each bounded in time and bytes; nothing is subscribed to and nothing changed.

Source: ZMTP 3.0 (RFC 23), the greeting of 64 bytes and READY of the mechanism NULL.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from router.causes import cause_of
from router.plain_text import plain

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
_TYPE = b"\x0bSocket-Type\x00\x00\x00"
_PUBLISHERS = (b"PUB", b"XPUB")
_CONNECT_S = 2.0
_WORD_S = 0.5
_HTTP_S = 2.0
_MAX_BYTES = 64 * 1024


class Kind(StrEnum):
    """What listens there."""

    PUBLISHER = "publisher"  # or a socket of ZeroMQ that does not say its type
    NOBODY = "nobody"
    SILENT = "silent"
    OTHER_SOCKET = "other_socket"
    DATA_PORT = "data_port"
    CONTROL_PORT = "control_port"
    HTTP = "http"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who listens; ``detail`` is why nobody does, the type of the socket, or what was said."""

    kind: Kind
    detail: str = ""

    def fault(self, endpoint: str) -> str | None:
        """Why events never come from there, and what to name instead; None where they may."""
        match self.kind:
            case Kind.DATA_PORT | Kind.CONTROL_PORT:
                port = "data" if self.kind is Kind.DATA_PORT else "control"
                return (
                    f"{endpoint} is the {port} port of a kvroute router, which publishes nothing: name an "
                    "engine's event endpoint, or the http:// URL of an engine"
                )
            case Kind.HTTP:
                return (
                    f"{endpoint} is an HTTP server, not a publisher of events: if it is an engine, name its "
                    "http:// URL, and its event endpoint is asked for"
                )
            case Kind.OTHER_SOCKET:
                hint = " (engines replay there: --replay)" if self.detail == "ROUTER" else ""
                return f"{endpoint} is a ZeroMQ socket of type {self.detail}, not a publisher{hint}"
            case Kind.OTHER:
                return f"{endpoint} does not speak ZeroMQ: it says {self.detail}"
            case Kind.PUBLISHER | Kind.NOBODY | Kind.SILENT:
                return None


async def who_is_at(endpoint: str) -> Neighbour:
    """Who listens at ``tcp://host:port``; within some seconds."""
    host, _, port = endpoint.partition("://")[2].rpartition(":")
    try:
        return await _greet(host.strip("[]"), int(port))
    except TimeoutError:
        return Neighbour(Kind.NOBODY, f"no connection within {_CONNECT_S:g} s")
    except (OSError, ValueError) as error:
        return Neighbour(Kind.NOBODY, plain(cause_of(error)))


async def port_of_router(host: str, port: int) -> Kind | None:
    """Which port of a kvroute router it is; None where it is none, or cannot be asked."""
    try:
        ready = await _get(host, port, "/ready")
        if ready is not None and _field(ready, "status") in ("ready", "not_ready"):
            return Kind.DATA_PORT
        index = await _get(host, port, "/debug/index")
    except (OSError, TimeoutError):
        return None
    is_control = index is not None and _field(index, "key_spaces") is not None
    return Kind.CONTROL_PORT if is_control else None


async def _greet(host: str, port: int) -> Neighbour:
    async with _connected(host, port) as (reader, writer):
        writer.write(_GREETING)
        said = await _read(reader, 64, _WORD_S)
        if said.startswith(b"\xff"):
            writer.write(_READY)
            return _socket_of(said[64:] + await _read(reader, len(_READY) + 512, _WORD_S, _TYPE))
    answer = b"" if said else await _ask(host, port, "/")
    if not (said or answer).startswith(b"HTTP/"):
        said = said or answer
        return Neighbour(Kind.OTHER, ascii(said[:40])) if said else Neighbour(Kind.SILENT)
    return Neighbour(await port_of_router(host, port) or Kind.HTTP)


def _socket_of(ready: bytes) -> Neighbour:
    _, found, rest = ready.partition(_TYPE)
    name = rest[1 : 1 + rest[0]] if found and rest else b""
    if not name or name in _PUBLISHERS:
        return Neighbour(Kind.PUBLISHER, name.decode("ascii", "replace"))
    return Neighbour(Kind.OTHER_SOCKET, plain(name.decode("ascii", "replace")))


async def _get(host: str, port: int, path: str) -> bytes | None:
    """The body of an answer in HTTP; None where it is none."""
    head, found, body = (await _ask(host, port, path)).partition(b"\r\n\r\n")
    return body if found and head.startswith(b"HTTP/") else None


async def _ask(host: str, port: int, path: str) -> bytes:
    async with _connected(host, port) as (reader, writer):
        authority = f"[{host}]" if ":" in host else host
        lines = (f"GET {path} HTTP/1.1", f"Host: {authority}:{port}", "Connection: close", "", "")
        writer.write("\r\n".join(lines).encode())
        return await _read(reader, _MAX_BYTES, _HTTP_S)


@asynccontextmanager
async def _connected(
    host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(_CONNECT_S):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _read(
    reader: asyncio.StreamReader, num_bytes: int, timeout_s: float, until: bytes = b""
) -> bytes:
    """What comes in time, so many bytes at most; no longer than until a mark and some bytes came."""
    said = b""
    try:
        async with asyncio.timeout(timeout_s):
            while len(said) < num_bytes:
                more = await reader.read(num_bytes - len(said))
                said += more
                _, found, rest = said.partition(until) if until else (b"", b"", b"")
                if not more or (found and len(rest) > 4):
                    break
    except (TimeoutError, OSError):
        pass
    return said


def _field(body: bytes, name: str) -> object:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found.get(name) if isinstance(found, dict) else None
