"""What became of one request, and how answers of the known APIs are read.

A reading is one JSON object of an answer (the whole body, or one event of a stream) reduced to what is
measured: whether it carries output, what usage it reports, whether it is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson


class ErrorKind(StrEnum):
    """Why a request did not end well."""

    CONNECT_FAILED = "connect_failed"
    TIMED_OUT = "timed_out"
    CLIENT_ERROR = "client_error"  # 4xx but 429
    BUSY = "busy"  # 429 or 503
    SERVER_ERROR = "server_error"  # other 5xx
    ERROR_IN_STREAM = "error_in_stream"  # 200, then an error event
    BROKEN_OFF = "broken_off"  # ended before its end
    BAD_ANSWER = "bad_answer"  # neither JSON nor events
    NOT_SENT = "not_sent"  # as many requests as allowed were under way


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the engine counts them; None where it reports none."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's outcome and times.

    Attributes:
        index: its place in the workload.
        at_s: when it was to start, seconds from the start of the workload.
        late_ms: how much later it really started: the load generator's own fault.
        status: of the HTTP answer; None where none came.
        error: None where all went well.
        detail: the server's or the system's words on the error, cut to 200 characters.
        ttft_ms: from its start to the first output; of a whole answer, to its end.
        inter_token_ms: gaps between events with output.
        total_ms: from its start to the end.
        worker: as ``x-kvroute-worker`` names it.
        request_id: as ``x-request-id`` names it.
    """

    index: int
    at_s: float
    group: str = ""
    late_ms: float = 0.0
    status: int | None = None
    error: ErrorKind | None = None
    detail: str = ""
    ttft_ms: float | None = None
    inter_token_ms: tuple[float, ...] = ()
    total_ms: float | None = None
    usage: Usage = Usage()
    worker: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One JSON object of an answer."""

    has_output: bool = False
    usage: Usage | None = None
    error: str | None = None


class BadAnswerError(ValueError):
    """Not a JSON object."""


def read_object(data: bytes) -> Reading:
    """Read a chat completion, a completion or a ``/generate`` answer, whole or one event of it.

    Raises:
        BadAnswerError: not a JSON object.
    """
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadAnswerError("not JSON") from error
    if not isinstance(fields, dict):
        raise BadAnswerError("not a JSON object")
    if fields.get("error") is not None:
        return Reading(error=_message(fields["error"]))
    return Reading(_has_output(fields), _usage(fields))


def error_of_status(status: int) -> ErrorKind | None:
    """The kind of error that a status is; None for 1xx to 3xx."""
    if status in (429, 503):
        return ErrorKind.BUSY
    if status >= 500:
        return ErrorKind.SERVER_ERROR
    return ErrorKind.CLIENT_ERROR if status >= 400 else None


def _message(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:200]


def _has_output(fields: Mapping[str, object]) -> bool:
    if fields.get("text") or fields.get("output_ids"):
        return True
    choices = fields.get("choices")
    if not isinstance(choices, list):
        return False
    return any(_choice_has_output(choice) for choice in choices if isinstance(choice, dict))


def _choice_has_output(choice: Mapping[str, object]) -> bool:
    """The opening chunk of a chat names the role and has no content: no output yet."""
    if choice.get("text"):
        return True
    message = choice.get("delta") or choice.get("message")
    if not isinstance(message, dict):
        return False
    return any(message.get(name) for name in ("content", "reasoning_content", "tool_calls"))


def _usage(fields: Mapping[str, object]) -> Usage | None:
    usage = fields.get("usage")
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return Usage(
            _count(usage.get("prompt_tokens")),
            _count(cached),
            _count(usage.get("completion_tokens")),
        )
    meta = fields.get("meta_info")
    if isinstance(meta, dict):
        return Usage(
            _count(meta.get("prompt_tokens")),
            _count(meta.get("cached_tokens")),
            _count(meta.get("completion_tokens")),
        )
    return None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
