"""Heads of requests, read as strictly as a proxy must: what could be taken for two things is refused.

Two framings, a coding other than ``chunked``, chunks of HTTP/1.0, a target that is no path, HTTP/1.1 without a
host, two hosts or what is none, and other protocols, which the parser takes for HTTP.

Source: RFC 9112 §3.2, §6.1, §6.3.
"""

import asyncio
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from router.client_head import BARE_MARK, is_host, read_target
from router.headers import RawHeader, num_bytes

_KEPT_BYTES = 512  # of a target: a longer one is read anew each time
_NOTED = frozenset({b"expect", b"host", b"transfer-encoding"})
# What is being read: nothing, between two requests; a head; a body; nothing any more. Plain numbers, for
# each field of a head is looked at.
IDLE, HEAD, BODY, LINGER = range(4)


class RefusedError(Exception):
    """Raised through the parser, which keeps what it says."""


class Target(NamedTuple):
    """What a request is for, as its scope says it; ``url`` is the whole of it, as it came.

    Attributes:
        has_bare_mark: it ends in a ``?`` that no query follows.
    """

    url: bytes
    path: str
    raw_path: bytes
    query: bytes
    has_bare_mark: bool


class HeadReader(asyncio.Protocol):
    """The part of a connection that reads heads. What was read since one began is ``_head``, if not whole.

    Attributes:
        url: of the head that is read, or was read last.
        headers: of the same, names in lower case.
    """

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[RawHeader] = []
        self._parser = self._new_parser()
        self._phase = IDLE
        self._head = b""
        self._method = ""
        self._version = ""
        self._expects_continue = False
        self._has_coding = False
        self._has_host = False
        self._good_host = b""  # as a request before named it
        self._target: Target | None = None  # of the request before
        self._declines_upgrade = False
        self._extensions: dict[str, Any] = {}

    def on_message_begin(self) -> None:
        """A head begins."""
        self.url = b""
        self.headers = []
        self._expects_continue = False
        self._phase = HEAD
        self._has_coding = self._has_host = False

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self.url += url

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
            self._expects_continue = value.lower() == b"100-continue"
        elif self._has_coding or value.lower() != b"chunked":
            raise RefusedError
        else:
            self._has_coding = True

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
        self._expects_continue &= not is_old

    def _read_target(self) -> "Target":
        """Path and query; mostly those of the request before."""
        found, url = self._target, self.url
        if found is None or found.url != url:
            target = read_target(url)
            if target is None:
                raise RefusedError
            path, query, has_bare_mark = target
            text = path.decode("ascii")
            found = Target(url, unquote(text) if "%" in text else text, path, query, has_bare_mark)
            self._target = found if len(url) <= _KEPT_BYTES else None
        if self._method == "CONNECT":
            raise RefusedError
        return found

    def _scope(self) -> dict[str, Any]:
        """What a request's scope says of its head."""
        target, extensions = self._read_target(), self._extensions
        return {
            "http_version": self._version,
            "method": self._method,
            "path": target.path,
            "raw_path": target.raw_path,
            "query_string": target.query,
            "headers": self.headers,
            "extensions": {**extensions, BARE_MARK: True} if target.has_bare_mark else extensions,
        }

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What follows a last request is dropped, not refused.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _without_upgrade(self) -> bytes:
        """The head once more, as of a client that offers no other protocol, for a parser that reads on."""
        self._declines_upgrade = False
        self._parser = self._new_parser()
        line = f"{self._method} %s HTTP/{self._version}".encode()
        lines = [line % self.url]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
