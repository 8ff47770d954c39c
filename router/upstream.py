"""The client side of the proxy: one request to a worker, its answer chunk by chunk, faults by name.

A thin shell over aiohttp that turns every way in which a worker can fail into one ``UpstreamError``.
Connections are kept alive and reused; nothing is decompressed, redirected, retried or remembered here: one
``send`` delivers a request once at most.
The pool itself has no bound: the front door bounds requests in flight.

Timeouts: connecting, waiting for the first body byte, and silence between chunks. None bounds a live
answer as a whole, and none runs while a slow client makes the relay stop reading.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from router.headers import RawHeader, is_sendable

# Engines on uvicorn close idle connections after 5 s: let go before they do.
_KEEP_ALIVE_S = 4.0
_MAX_HEADER_BYTES = 64 * 1024
_MAX_HEADERS = 512
_LARGE_BODY_BYTES = 256 * 1024
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Fault(StrEnum):
    """How a worker failed a request."""

    CONNECT = "connect"  # refused, unresolved, or no connection in time
    RESET = "reset"  # closed or reset before or within its answer
    TIMEOUT = "timeout"  # silent for too long
    MALFORMED = "malformed"  # what it sent is no HTTP
    UNHEALTHY = "unhealthy"  # silent, while its health says that it will not answer


class UpstreamError(Exception):
    """A worker failed. ``fault`` says how."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """Seconds; see the module's docstring."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class UpstreamAnswer:
    """One answer, as it arrives. Close it on every path; a complete one is already released."""

    __slots__ = ("_idle_s", "_protocol", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float) -> None:
        connection = response.connection
        self._response = response
        self._protocol = connection.protocol if connection is not None else None
        self._idle_s: float | None = idle_s
        self.status = response.status
        self.headers: Sequence[RawHeader] = response.raw_headers

    @property
    def is_complete(self) -> bool:
        """Has the whole body been read?"""
        return self._response.content.at_eof()

    async def read(self) -> bytes:
        """Whatever has arrived, waiting for at least a byte; empty at the end of the body.

        Raises:
            UpstreamError: the worker broke off or fell silent.
        """
        try:
            chunk = await self._response.content.readany()
        except aiohttp.ServerTimeoutError as error:
            raise UpstreamError(Fault.TIMEOUT, "silent within its answer") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(Fault.RESET, str(error)) from error
        if self._idle_s is not None and chunk:
            self._watch_idle(self._idle_s)
        if self._response.content.at_eof():
            self._refuse_reset()
        return chunk

    def close(self) -> None:
        """Give the connection back if the body was read, else close it: the worker sees that and stops.

        A connection that cannot even be closed is as good as closed.
        """
        with suppress(aiohttp.ClientError, OSError):
            self._response.close()

    def _watch_idle(self, idle_s: float) -> None:
        """From the first body byte on, silence is bounded by the idle timeout."""
        self._idle_s = None
        if self._protocol is not None and not self._response.content.is_eof():
            self._protocol.read_timeout = idle_s
            self._protocol.start_timeout()

    def _refuse_reset(self) -> None:
        """A body without length or chunks ends with its connection: by close it is whole, by reset not."""
        protocol = self._protocol
        if protocol is None or not isinstance(protocol.exception(), aiohttp.ClientOSError):
            return
        names = {name.lower() for name, _ in self.headers}
        if b"content-length" not in names and b"transfer-encoding" not in names:
            raise UpstreamError(Fault.RESET, "reset within a body that has no length")


class Upstream:
    """Sends requests to workers."""

    def __init__(self, session: aiohttp.ClientSession, timeouts: UpstreamTimeouts) -> None:
        self._session = session
        self._timeouts = timeouts

    async def send(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> UpstreamAnswer:
        """Send one request and wait for the head of its answer. Cancelling closes the connection.

        Args:
            method: as the client sent it.
            url: the worker's base and the client's raw target, not to be normalised.
            headers: end to end fields, in order; host and length are added.
            body: all of it.

        Raises:
            UpstreamError: no head came.
        """
        try:
            if len(body) <= _LARGE_BODY_BYTES:
                response = await self._request(method, url, headers, body or None)
            else:
                # The read timeout starts once the body is out; this one covers a worker that reads none.
                async with asyncio.timeout(self._timeouts.first_byte_s):
                    response = await self._request(method, url, headers, io.BytesIO(body))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamError(Fault.CONNECT, str(error)) from error
        except TimeoutError as error:
            raise UpstreamError(Fault.TIMEOUT, "no answer in time") from error
        except aiohttp.ClientResponseError as error:
            raise UpstreamError(Fault.MALFORMED, error.message) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(Fault.RESET, str(error)) from error
        if not 200 <= response.status < 600 or not is_sendable(response.raw_headers):
            response.close()
            raise UpstreamError(Fault.MALFORMED, "a status or a header field that no answer has")
        return UpstreamAnswer(response, self._timeouts.idle_s)

    async def _request(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes | io.BytesIO | None,
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            URL(url, encoded=True),
            headers=CIMultiDict(headers),
            data=body,
            allow_redirects=False,
        )


@asynccontextmanager
async def open_upstream(timeouts: UpstreamTimeouts) -> AsyncIterator[Upstream]:
    """An ``Upstream`` with a connection pool of its own, which closes with the context."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_AUTO_HEADERS,
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=timeouts.connect_s, sock_read=timeouts.first_byte_s
        ),
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
        max_headers=_MAX_HEADERS,
    )
    # aiohttp sends idempotent methods once more when a reused connection breaks; whether a request may be
    # repeated, and where, is the exchange's to decide.
    session._retry_connection = False  # noqa: SLF001
    async with session:
        yield Upstream(session, timeouts)
