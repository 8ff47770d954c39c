"""Heads of requests, read as strictly as a proxy must: what could be taken for two things is refused.

Two framings, a coding other than ``chunked``, chunks of HTTP/1.0, a target that is no path, HTTP/1.1 without a
host, two hosts or what is none, and other protocols, which the parser takes for HTTP.

Source: RFC 9112 §3.2, §6.1, §6.3.
"""

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from router.client_head import BARE_MARK, is_host, read_target
from router.headers import num_bytes

_NOTED = frozenset({b"expect", b"host", b"transfer-encoding"})
# What is being read: nothing, between two requests; a head; a body; nothing any more. Plain numbers, for
# each field of a head is looked at.
IDLE, HEAD, BODY, LINGER = range(4)


class RefusedError(Exception):
    """Raised through the parser, which keeps what it says."""


class HeadReader(HttpToolsProtocol):
    """The part of a connection that reads heads. What was read since one began is ``_head``, if not whole."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._phase = IDLE
        self._head = b""
        self._has_coding = False
        self._has_host = False
        self._good_host = b""  # as a request before named it
        self._declines_upgrade = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailers, which are dropped."""
        if self._phase != HEAD:
            return
        name = name.lower()
        if name in _NOTED:
            self._note(name, value)
        self.headers.append((name, value))

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            if self._has_host or (value != self._good_host and not is_host(value)):
                raise RefusedError
            self._has_host = True
            self._good_host = value
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif self._has_coding or value.lower() != b"chunked":
            raise RefusedError
        else:
            self._has_coding = True

    def _begin_head(self) -> None:
        self._phase = HEAD
        self._has_coding = self._has_host = False

    def _num_head_bytes(self) -> int:
        return len(self.url) + num_bytes(self.headers)

    def _check_head(self, *, is_old: bool) -> None:
        """It is whole: is it one?

        Args:
            is_old: of HTTP/1.0, whose clients need name no host and are told of no 100.
        """
        if self._has_coding if is_old else not self._has_host:
            raise RefusedError
        if self.url + b" HTTP/1." not in self._head:
            raise RefusedError
        self.expect_100_continue &= not is_old
        self._read_target()

    def _read_target(self) -> None:
        scope, target = self.scope, read_target(self.url)
        if target is None or scope["method"] == "CONNECT":
            raise RefusedError
        path, query, has_bare_mark = target
        text = path.decode("ascii")
        scope["path"] = unquote(text) if "%" in text else text
        scope["raw_path"] = path
        scope["query_string"] = query
        if has_bare_mark:
            extensions: dict[str, Any] = {**(scope["extensions"] or {}), BARE_MARK: True}
            scope["extensions"] = extensions

    def _without_upgrade(self) -> bytes:
        """The head once more, as of a client that offers no other protocol, for a parser that reads on."""
        self._declines_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        line = f"{self.scope['method']} %s HTTP/{self.scope['http_version']}".encode()
        lines = [line % self.url]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
