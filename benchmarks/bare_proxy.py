"""The baseline of the data plane: an ASGI endpoint that only passes on, over aiohttp.

No reading of the body, no choice, no limits, no retries: what the same stack costs before a router does
any of its work. ``BACKEND`` names the one engine.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp

_OWN = (b"host", b"connection")

Message = MutableMapping[str, Any]


class BareProxy:
    """An ASGI application."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._session: aiohttp.ClientSession | None = None

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
            )
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {k.decode(): v.decode() for k, v in scope["headers"] if k not in _OWN}
        url = self._backend + scope["path"]
        async with self._session.request(
            scope["method"], url, data=body, headers=headers
        ) as answer:
            hop = {b"transfer-encoding", b"connection"}
            kept = [(k.lower(), v) for k, v in answer.raw_headers if k.lower() not in hop]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def create() -> BareProxy:
    """Factory for uvicorn."""
    return BareProxy(os.environ["BACKEND"])
