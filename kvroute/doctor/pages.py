"""Calls to a worker that change nothing there: bounded in time and size, one failing without the others."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpx

from router.causes import cause_of

MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, or why there is none.

    Attributes:
        status: None where there was none.
        headers: by name in lower case.
        at: when it was answered; wall clock, seconds since the epoch.
    """

    status: int | None = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    at: float = 0.0

    @property
    def is_there(self) -> bool:
        """Was it answered with 2xx?"""
        return self.status is not None and 200 <= self.status < 300

    @property
    def json(self) -> object:
        """What it says; None where that is no JSON, or there is no such route."""
        if not self.is_there:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def shown(self) -> str:
        """Why there is no good answer, in short: to be cleaned before it is shown."""
        return self.fault or f"answers {self.status}: {self.body[:200].decode('utf-8', 'replace')}"

    @property
    def ahead_s(self) -> float | None:
        """How far the other machine's clock is ahead, by the header ``Date``, to the second; None without one."""
        date = self.headers.get("date")
        try:
            return None if date is None else parsedate_to_datetime(date).timestamp() - self.at
        except (ValueError, OverflowError):
            return None

    @property
    def text(self) -> str | None:
        """As text; None where there is no such route."""
        return self.body.decode("utf-8", "replace") if self.is_there else None


class Pages:
    """Pages below one base URL."""

    def __init__(self, client: httpx.AsyncClient, url: str, timeout_s: float) -> None:
        self._client = client
        self._url = url
        self._timeout_s = timeout_s

    async def get_all(self, paths: Sequence[str]) -> dict[str, Page]:
        """Several at once, by path."""
        found = await asyncio.gather(*(self.get(path) for path in paths))
        return dict(zip(paths, found, strict=True))

    async def get(self, path: str) -> Page:
        """One page."""
        return await self._ask("GET", path, None, {})

    async def post(
        self, path: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Page:
        """What is answered to a JSON body."""
        return await self._ask("POST", path, body, headers or {})

    async def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None, headers: Mapping[str, str]
    ) -> Page:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read(method, f"{self._url}{path}", body, headers)
        except TimeoutError:
            return Page(fault=f"{path}: no whole answer within {self._timeout_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return Page(fault=f"{path}: {cause_of(error)}")

    async def _read(
        self, method: str, url: str, body: Mapping[str, object] | None, sent: Mapping[str, str]
    ) -> Page:
        data = bytearray()
        async with self._client.stream(method, url, json=body, headers=dict(sent)) as response:
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > MAX_BYTES:
                    return Page(fault=f"{url} answers more than {MAX_BYTES} bytes")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Page(response.status_code, bytes(data), headers, at=time.time())


def open_client(token: str | None, timeout_s: float, tls: ssl.SSLContext) -> httpx.AsyncClient:
    """A client for pages of one token; connections are not kept."""
    headers = {"Accept-Encoding": "identity"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(
        timeout=timeout_s,
        headers=headers,
        limits=limits,
        verify=tls,
        trust_env=False,
    )
