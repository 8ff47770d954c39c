"""Who may use the control port: who knows its token; where there is none, who is on this machine and no web page.

Without a token the port is on loopback. But a browser on the same machine lends that to every page it shows: it sends what a page
of any origin asks for, and to a name that a page's owner lets lead here. Both are told by their header fields, and refused.
"""

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import HTTPException, Request


class ControlGuard:
    """Lets through who knows the token, as UTF-8; where there is none, everybody but web pages of other origins."""

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()

    def __call__(self, request: Request) -> None:
        if self._expected is None:
            _refuse_pages(request.headers.get("host", ""), request.headers.get("origin"))
            return
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes as they came
        if not hmac.compare_digest(given, self._expected):
            headers = {"WWW-Authenticate": "Bearer"}
            raise HTTPException(401, "the control token is missing or wrong", headers)


def _refuse_pages(host: str, origin: str | None) -> None:
    if not _cannot_be_lent(host):
        message = "without a control token this port is asked by an address, or as localhost"
        raise HTTPException(403, message)
    if origin is not None and origin.partition("://")[2] != host:
        message = "pages of other origins may not ask here without a control token"
        raise HTTPException(403, message)


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
