"""What the front door answers when it answers itself: one table from kind to status and body.

Bodies have the shape that OpenAI's clients read: ``{"error": {"message", "type", "param", "code"}}``.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import orjson

from prompt import Api
from router.headers import RawHeader
from router.plain_text import plain

_MAX_MESSAGE = 1024


class ErrorKind(StrEnum):
    """Everything that the front door refuses or reports on its own."""

    MALFORMED = "malformed_request"
    UNAUTHORIZED = "invalid_api_key"
    NOT_ALLOWED = "not_allowed"
    RATE_LIMIT = "rate_limit_exceeded"
    CONCURRENCY_LIMIT = "concurrency_limit_exceeded"
    BODY_TOO_LARGE = "body_too_large"
    HEAD_TOO_LARGE = "head_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    OVERLOADED = "overloaded"
    AT_CAPACITY = "at_capacity"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    QUEUE_DISPLACED = "queue_displaced"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    STOPPING = "stopping"
    LOOP = "loop"
    NO_WORKER = "no_worker"
    UNREACHABLE = "worker_unreachable"
    BROKEN_OFF = "worker_broke_off"
    TIMED_OUT = "worker_timed_out"
    INTERNAL = "internal_error"


@dataclass(frozen=True, slots=True)
class _Shape:
    status: int
    type: str
    retry_after_s: int | None = None


_SHAPES = {
    ErrorKind.MALFORMED: _Shape(400, "invalid_request_error"),
    ErrorKind.UNAUTHORIZED: _Shape(401, "invalid_request_error"),
    ErrorKind.NOT_ALLOWED: _Shape(403, "invalid_request_error"),
    ErrorKind.RATE_LIMIT: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.CONCURRENCY_LIMIT: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.BODY_TOO_LARGE: _Shape(413, "invalid_request_error"),
    ErrorKind.MODEL_NOT_FOUND: _Shape(404, "invalid_request_error"),
    ErrorKind.NOT_FOUND: _Shape(404, "invalid_request_error"),
    ErrorKind.METHOD_NOT_ALLOWED: _Shape(405, "invalid_request_error"),
    ErrorKind.OVERLOADED: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.AT_CAPACITY: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.QUEUE_FULL: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.QUEUE_TIMEOUT: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.QUEUE_DISPLACED: _Shape(429, "rate_limit_error", retry_after_s=1),
    ErrorKind.HEAD_TOO_LARGE: _Shape(431, "invalid_request_error"),
    ErrorKind.REQUEST_TIMEOUT: _Shape(408, "invalid_request_error"),
    ErrorKind.TOO_MANY_CONNECTIONS: _Shape(503, "server_error", retry_after_s=1),
    ErrorKind.STOPPING: _Shape(503, "server_error", retry_after_s=1),
    ErrorKind.NO_WORKER: _Shape(503, "server_error", retry_after_s=1),
    ErrorKind.UNREACHABLE: _Shape(502, "server_error", retry_after_s=1),
    ErrorKind.BROKEN_OFF: _Shape(502, "server_error"),
    ErrorKind.TIMED_OUT: _Shape(504, "server_error"),
    ErrorKind.LOOP: _Shape(508, "server_error"),
    ErrorKind.INTERNAL: _Shape(500, "server_error"),
}


class FrontDoorError(Exception):
    """The request ends here with an answer of the front door's own.

    Attributes:
        kind: selects status and body.
        param: the field at fault, where there is one.
        retry_after_s: when to try again, seconds; None where trying again is no use. By default the kind says.

    What clients and workers say may stand in ``message`` and ``param``: they are cut, and can be written.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s or _SHAPES[kind].retry_after_s
        self.message = plain(message, _MAX_MESSAGE)
        self.param = None if param is None else plain(param)

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return _SHAPES[self.kind].status

    @cached_property
    def _body(self) -> bytes:
        error = {
            "message": self.message,
            "type": _SHAPES[self.kind].type,
            "param": self.param,
            "code": str(self.kind),
        }
        return orjson.dumps({"error": error})

    def body(self) -> bytes:
        """The answer's JSON body, encoded once."""
        return self._body

    def headers(self) -> list[RawHeader]:
        """The answer's header section."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body())),
        ]
        if self.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after_s))
        if self.kind is ErrorKind.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers


def sse_error(error: FrontDoorError, api: str) -> bytes:
    """The error as a last server-sent event of a stream that has begun.

    Anthropic's clients read events by their names and skip those without one; OpenAI's take a name for another thing.
    """
    if api != Api.MESSAGES:
        return b"data: " + error.body() + b"\n\n"
    told = {"type": "api_error", "message": error.message, "code": str(error.kind)}
    data = orjson.dumps({"type": "error", "error": told})
    return b"event: error\ndata: " + data + b"\n\n"
