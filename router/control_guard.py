"""Who may use the control port: who knows its token; where there is none, who is on this machine and no web page.

    request ─▶ probe? ─▶ token, or no page ─▶ body within its bound ─▶ application

An application before the port's own, so that nothing of a stranger's is looked up, read or parsed. Without a token the port is
on loopback. But a browser on the same machine lends that to every page it shows: it sends what a page of any origin asks
for, and to a name that a page's owner lets lead here. Both are told by their header fields, and refused.

Source: the Fetch standard, ``Origin``; W3C Fetch Metadata Request Headers, ``Sec-Fetch-Site``.
"""

import hmac
from collections import Counter
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

import orjson
from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.answer import Answer
from router.headers import RawHeader, header
from router.refusal import answer_unread

MAX_CHANGE_BYTES = 1024 * 1024
"""Of the body of a call that changes workers, which is parsed on the event loop; a longer one gets 413."""
_CHANGES = "/workers"
_PROBES = frozenset({"/health", "/ready"})
_OWN_SITES = (None, b"none", b"same-origin")


class Intruder(StrEnum):
    """Why a call was refused."""

    TOKEN = "token"  # missing or wrong
    NAME = "name"  # without a token: by a name that can be let lead anywhere
    PAGE = "page"  # without a token: from a page of another origin


_WORDS = {
    Intruder.TOKEN: "the control token is missing or wrong",
    Intruder.NAME: "without a control token this port is asked by an address, or as localhost",
    Intruder.PAGE: "pages of other origins may not ask here without a control token",
}


class ControlGuard:
    """The ASGI application. It lets through who knows the token, as UTF-8; where there is none, everybody but web pages of
    other origins.

    Args:
        refusals: where calls that are refused are counted.
    """

    def __init__(self, app: ASGIApp, token: str | None, refusals: Counter[Intruder]) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in _PROBES and (why := self._intruder(scope["headers"])) is not None:
            self._refusals[why] += 1
            await _refuse(Answer(send), receive, why)
            return
        is_change = scope["path"].startswith(_CHANGES)
        await self._app(scope, _bounded(receive) if is_change else receive, send)

    def _intruder(self, headers: list[RawHeader]) -> Intruder | None:
        if self._expected is not None:
            given = header(headers, b"authorization") or b""
            return None if hmac.compare_digest(given, self._expected) else Intruder.TOKEN
        host = (header(headers, b"host") or b"").decode("latin-1")
        if not _cannot_be_lent(host):
            return Intruder.NAME
        origin = (header(headers, b"origin") or b"").decode("latin-1")
        is_own = not origin or origin.partition("://")[2] == host
        is_from_here = header(headers, b"sec-fetch-site") in _OWN_SITES
        return None if is_own and is_from_here else Intruder.PAGE


def _bounded(receive: Receive) -> Receive:
    """Raises ``HTTPException`` beyond ``MAX_CHANGE_BYTES``."""
    num_bytes = 0

    async def receive_within() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > MAX_CHANGE_BYTES:
            raise HTTPException(413, "the request body is too long")
        return message

    return receive_within


async def _refuse(answer: Answer, receive: Receive, why: Intruder) -> None:
    body = orjson.dumps({"detail": _WORDS[why]})
    length = (b"content-length", b"%d" % len(body))
    headers: list[RawHeader] = [(b"content-type", b"application/json"), length]
    if why is Intruder.TOKEN:
        headers.append((b"www-authenticate", b"Bearer"))
    status = 401 if why is Intruder.TOKEN else 403
    await answer_unread(answer, receive, (status, headers, body), MAX_CHANGE_BYTES)


def _cannot_be_lent(host: str) -> bool:
    """Is it an address, or a name that nobody can let lead elsewhere?"""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if not name or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
