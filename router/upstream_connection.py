"""One kept connection to a worker: writes a request, parses what comes back into its answer.

    idle ──send──▶ head ──▶ body ──▶ end ─┬─ may be kept ──▶ idle, back with its home
                    │ 1xx: skipped        └─ else ────────▶ closed
                    └─ refused, cut off, silent, abandoned ─▶ the answer fails, closed

A request and what its answer leaves behind are never mixed up with the next: a byte beyond the end of an answer, or one that
comes unasked, closes the connection, and so does an end that comes before the request has been written. One that comes when
the next request is out cannot be told from that one's answer: so what answers HEAD, and a 204 or 304 that declares a body, is
the last on its connection, for some workers send it. An end that comes too early fails the answer; by a close a body is whole
only where it has neither length nor chunks, and over TLS only by one that TLS announces (``close_notify``). Framing that can
be read in two ways is refused.

Bounds: a head, with all interim ones before it, of ``MAX_HEAD_BYTES`` and ``MAX_FIELDS``; as much of chunk framing and
trailers between two pieces of a body; ``MAX_INTERIM`` answers of 1xx. Beyond them the answer fails.

A request costs no timer: ``due`` says when the connection has overstayed, and its home looks at that.

Source: RFC 9112 §6.3, §9.3 to §9.6, §9.8.
"""

import asyncio
from typing import Protocol

import httptools

from router.answer_framing import CODING, declares_body, is_unframed
from router.close_notify import is_encrypted, is_told
from router.headers import BODILESS, RawHeader, is_sendable, num_bytes
from router.large_body import WRITE_BYTES, LargeBody
from router.last_words import last_words
from router.upstream_answer import (
    HIGH_WATER_BYTES,
    PIECE_BYTES,
    UpstreamAnswer,
    UpstreamTimeouts,
)
from router.upstream_faults import Fault

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 512
MAX_INTERIM = 16
JOINED_BYTES = 16 * 1024  # up to here head and body are copied into one buffer
STALE_S = 1.0  # after a request: a connection that breaks later was not closed while it idled
NEVER = float("inf")
_VERSIONS = frozenset({"1.1", "1.0"})
_PLAIN = tuple(b"HTTP/1.1 %d" % digit for digit in (2, 3, 4, 5))


class Home(Protocol):
    """Where a connection comes from, and where it goes when it is idle."""

    def released(self, connection: "UpstreamConnection", now: float) -> None:
        """It can serve again."""

    def lost(self, connection: "UpstreamConnection") -> None:
        """It is gone."""


class _RefusedError(Exception):
    """Raised through the parser: what comes is not taken. Says why."""


class UpstreamConnection(asyncio.Protocol):
    """One connection.

    Attributes:
        due: when it has overstayed, idle or awaited, in the loop's time.
    """

    __slots__ = (
        "_answer",
        "_asked_at",
        "_fruitless_bytes",
        "_has_begun",
        "_has_coding",
        "_has_served",
        "_headers",
        "_home",
        "_interim_bytes",
        "_is_head_request",
        "_is_in_head",
        "_is_made",
        "_is_plain",
        "_is_reading_paused",
        "_is_writing_paused",
        "_large_body",
        "_loop",
        "_may_be_kept",
        "_num_interim",
        "_parser",
        "_timeouts",
        "_transport",
        "due",
    )
    _transport: asyncio.Transport

    def __init__(
        self, home: Home, loop: asyncio.AbstractEventLoop, timeouts: UpstreamTimeouts
    ) -> None:
        self._home = home
        self._loop = loop
        self._timeouts = timeouts
        self._parser = httptools.HttpResponseParser(self)
        self._answer: UpstreamAnswer | None = None
        self._headers: list[RawHeader] = []
        self._large_body: LargeBody | None = None  # the last one, perhaps on its way
        self._asked_at = 0.0
        self._fruitless_bytes = 0  # read since the request, or a piece of the body, was complete
        self._interim_bytes = 0
        self._num_interim = 0
        self._has_begun = False  # a byte came that is no line end
        self._has_coding = False
        self._has_served = False
        self._is_head_request = False
        self._is_in_head = True
        self._is_made = False
        self._is_plain = False  # it begins as final answers of HTTP/1.1 do
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._may_be_kept = False
        self.due = NEVER

    @property
    def is_usable(self) -> bool:
        """Can it serve a request?"""
        return self._answer is None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, *, is_head_request: bool) -> UpstreamAnswer:
        """Write one request, in one piece if it is not large; the rest of a large body follows as fast as the
        worker reads.

        Args:
            is_head_request: its answer has no body.
        """
        assert self._answer is None, "one request at a time"
        answer = UpstreamAnswer(self, self._timeouts)
        if self._transport.is_closing():
            answer.fail(Fault.RESET, "closed before the request", is_stale=self._has_served)
            return answer
        self._answer = answer
        self._asked_at = self._loop.time()
        self._headers = []
        self._fruitless_bytes = self._interim_bytes = self._num_interim = 0
        self._is_head_request = is_head_request
        self._is_in_head = True
        self._has_begun = self._has_coding = self._may_be_kept = False
        if len(body) <= JOINED_BYTES:
            self._transport.write(head + body)
        elif len(body) <= WRITE_BYTES:
            self._transport.writelines((head, body))
        else:
            self._large_body = LargeBody(
                self._transport, self._loop, body, is_paused=self._is_writing_paused
            )
            self._large_body.write_on(head)
        return answer

    # Of the answer

    def expect_within(self, limit_s: float) -> asyncio.Future[None]:
        """What a reader waits on; its patience starts anew."""
        loop = self._loop
        self.due = loop.time() + limit_s
        return loop.create_future()

    def read_on(self) -> None:
        """What had come was taken."""
        if self._is_reading_paused:
            self._is_reading_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def abandon(self) -> None:
        """Nobody wants the rest of the answer."""
        self._answer = None
        self.close()

    # Of the home

    def close(self) -> None:
        """At once, if it was made."""
        self._large_body = None
        if self._is_made:
            self._transport.abort()

    def expire(self) -> None:
        """It is due: idle for too long, or silent while its answer is awaited."""
        if self._answer is None:
            self.close()
        elif self._answer.is_awaited:
            detail = "no answer in time" if self._is_in_head else "silent for too long"
            self._fail(Fault.TIMEOUT, detail)

    # The transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open."""
        self._transport = transport
        self._is_made = True

    def data_received(self, data: bytes) -> None:
        """Parse what came, and wake the reader once for all of it."""
        answer = self._answer
        if answer is None:
            self.close()
            return
        was_in_head = self._is_in_head
        if not self._has_begun:
            self._is_plain = data.startswith(_PLAIN)
        self._fruitless_bytes += len(data)
        try:
            if self._is_plain or not self._is_in_head:
                self._parser.feed_data(data)
            else:
                self._feed_lines(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _RefusedError) as error:
            self._may_be_kept = False
            if not answer.is_ended:
                self._fail(Fault.MALFORMED, str(error.__context__ or error))
                return
        if answer.is_ended:
            self._settle(answer)
        elif self._fruitless_bytes > MAX_HEAD_BYTES:
            self._fail(Fault.MALFORMED, f"more than {MAX_HEAD_BYTES} bytes of head or framing")
        elif answer.unread_bytes > HIGH_WATER_BYTES and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        if answer.pieces or answer.is_ended or was_in_head is not self._is_in_head:
            answer.wake()

    def eof_received(self) -> None:
        """The worker sends nothing more; the transport closes on return."""
        self._end(None, is_told=is_told(self._transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed. An answer may have come before the reset that a write met."""
        if exc is not None and self._answer is not None and (rest := last_words(self._transport)):
            self.data_received(rest)
        self._large_body = None
        self._home.lost(self)
        self._end(exc, is_told=not is_encrypted(self._transport))
        del self._parser  # which holds this connection

    def pause_writing(self) -> None:
        """The worker reads too slowly."""
        self._is_writing_paused = True
        if self._large_body is not None:
            self._large_body.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_writing_paused = False
        if self._large_body is not None:
            self._large_body.resume()

    # The parser

    def on_message_begin(self) -> None:
        """The first byte of an answer; one a request."""
        if self._answer is None or self._answer.is_ended:
            raise _RefusedError("an answer that nobody asked for")
        self._has_begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailers, which are dropped."""
        if not self._is_in_head:
            self._fruitless_bytes += len(name) + len(value)
            return
        if len(name) == len(CODING) and name.lower() == CODING:
            if self._has_coding or value.strip().lower() != b"chunked":
                raise _RefusedError("a transfer coding other than chunked")
            self._has_coding = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole. Interim ones are skipped."""
        status, headers, answer = self._parser.get_status_code(), self._headers, self._answer
        assert answer is not None, "parsed while somebody waits"
        if len(headers) > MAX_FIELDS:
            raise _RefusedError(f"more than {MAX_FIELDS} header fields")
        if self._fruitless_bytes > MAX_HEAD_BYTES:
            self._measure()
        if not self._is_plain or self._num_interim:
            self._check_version()
        if 100 <= status < 200:
            self._skip(status)
            return
        if not 200 <= status < 600 or not is_sendable(headers):
            raise _RefusedError("a status or a header field that no answer has")
        answer.status = status
        answer.headers = headers
        self._is_in_head = False
        self._fruitless_bytes = 0
        if self._is_head_request:
            answer.is_ended = True
            raise _RefusedError("a body, for the parser cannot be told that none follows")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        answer = self._answer
        assert answer is not None, "parsed while somebody reads"
        if self._is_in_head:
            raise _RefusedError("an interim answer with a body")
        self._fruitless_bytes = 0
        answer.unread_bytes += len(body) + PIECE_BYTES
        answer.pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole, or an interim one is. Only in here the parser knows of keeping alive."""
        if self._is_in_head or self._answer is None:
            self._has_begun = False
            return
        answer = self._answer
        answer.is_ended = True
        self._may_be_kept = self._parser.should_keep_alive() and (
            answer.status not in BODILESS or not declares_body(answer.headers)
        )

    # The rest

    def _feed_lines(self, data: bytes) -> None:
        """What may hold several heads, line by line: the parser takes other protocols, too, at the start of each."""
        at, end = 0, len(data)
        while at < end and self._is_in_head:
            start, at = at, data.find(b"\n", at) + 1 or end
            line = data[start:at]
            if not self._has_begun and line.lstrip(b"\r\n")[:1] not in b"H":
                raise _RefusedError("no answer of HTTP")
            self._parser.feed_data(line)
        if at < end:
            self._parser.feed_data(data[at:])

    def _skip(self, status: int) -> None:
        self._num_interim += 1
        if status == 101 or self._num_interim > MAX_INTERIM:
            raise _RefusedError("another protocol, or too many interim answers")
        self._interim_bytes += num_bytes(self._headers)
        self._headers = []
        self._has_coding = False

    def _measure(self) -> None:
        """More came than a head may have: how much of it is head?"""
        if self._interim_bytes + num_bytes(self._headers) > MAX_HEAD_BYTES:
            raise _RefusedError(f"a head of more than {MAX_HEAD_BYTES} bytes")

    def _check_version(self) -> None:
        """The parser takes 0.9 and 2.0, too, and chunks of 1.0, which has none."""
        version = self._parser.get_http_version()
        if version not in _VERSIONS or (version == "1.0" and self._has_coding):
            raise _RefusedError("a version of HTTP other than 1.0 and 1.1, or chunks of 1.0")

    def _settle(self, answer: UpstreamAnswer) -> None:
        """The answer is whole: the connection is free, or of no more use."""
        self._answer = None
        answer.end()
        if self._may_be_kept and self._has_sent_all():
            self.read_on()
            self._has_served = True
            self._home.released(self, self._loop.time())
        else:
            self.close()

    def _has_sent_all(self) -> bool:
        """Is the request on its way, and the connection open?"""
        has_more = self._large_body is not None and not self._large_body.is_sent
        is_open = not has_more and not self._transport.is_closing()
        return is_open and not self._transport.get_write_buffer_size()

    def _end(self, exc: Exception | None, *, is_told: bool) -> None:
        """The worker has closed or reset the connection.

        Args:
            is_told: by the worker itself, where only it can tell.
        """
        answer = self._answer
        if answer is None:
            return
        if exc is None and is_told and not self._is_in_head and is_unframed(answer.headers):
            answer.is_ended = True
            self._may_be_kept = False
            self._settle(answer)
            answer.wake()
            return
        said = "closed" if exc is None else str(exc)
        self._fail(Fault.RESET, f"{said} {'before' if self._is_in_head else 'within'} its answer")

    def _fail(self, fault: Fault, detail: str) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None, "somebody waits"
        is_stale = fault is Fault.RESET and self._has_served and self._is_unanswered()
        self.close()
        answer.fail(fault, detail, is_stale=is_stale)

    def _is_unanswered(self) -> bool:
        """Has the request gone out this moment, and not a byte come?"""
        if self._fruitless_bytes or not self._is_in_head:
            return False
        return self._loop.time() - self._asked_at <= STALE_S
