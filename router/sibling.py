"""Another router of the same fleet, asked for its index over its control port."""

import ssl
from collections.abc import AsyncGenerator

import httpx

from indexer.dump_format import MAX_LINE_BYTES
from router.causes import cause_of

_CONNECT_S = 2.0


class SiblingError(Exception):
    """A sibling did not answer, or not with a dump. The message says how."""


class Siblings:
    """Asks siblings.

    Args:
        token: of their control ports.
        silence_s: of a sibling, that ends a dump.
        tls: for those at https; None trusts the system's authorities.
        transport: in place of the network.
    """

    def __init__(
        self,
        token: str | None,
        silence_s: float,
        tls: ssl.SSLContext | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._headers = {"Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = httpx.Timeout(silence_s, connect=min(_CONNECT_S, silence_s))
        self._transport = transport
        self._tls = tls or ssl.create_default_context()

    async def dump(self, url: str, worker: str) -> AsyncGenerator[bytes, None]:
        """The lines of a sibling's dump of one worker, as they come; the last one may be cut short.

        At most one line and one read of the network are held; O(bytes). Bytes are taken as they were sent: what
        is compressed can be of any size, and is refused.

        Raises:
            SiblingError: it does not answer with 200 and plain bytes, breaks off, or a line has no end.
        """
        route = f"{url}/debug/index/dump"
        try:
            async with (
                self._client() as client,
                client.stream("GET", route, params={"worker": worker}) as answer,
            ):
                if answer.status_code != 200:
                    raise SiblingError(f"{route} answers {answer.status_code}")
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise SiblingError(f"{route} sends what is encoded")
                rest = bytearray()
                async for chunk in answer.aiter_raw():
                    *lines, end = chunk.split(b"\n")
                    for line in lines:
                        yield bytes(rest) + line
                        rest.clear()
                    rest += end
                    if len(rest) > MAX_LINE_BYTES:
                        raise SiblingError(f"{route} sends a line without an end")
                if rest:
                    yield bytes(rest)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SiblingError(f"{route}: {cause_of(error)}") from error

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=self._headers,
            timeout=self._timeout,
            transport=self._transport,
            verify=self._tls,
            trust_env=False,
        )
