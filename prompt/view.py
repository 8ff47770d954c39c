"""The few fields of a request body that routing looks at. The body itself is never changed.

Fields are read leniently: one of an odd type is taken as absent, because judging the body is the worker's
business. Only a body that is no JSON object at all is refused here.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import orjson

from prompt.errors import MalformedRequestError


class Api(StrEnum):
    """What kind of request a path stands for."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    GENERATE = "generate"
    RESPONSES = "responses"
    MESSAGES = "messages"
    OTHER = "other"


_API_OF_PATH = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/completions": Api.COMPLETIONS,
    "/generate": Api.GENERATE,
    "/v1/responses": Api.RESPONSES,
    "/v1/messages": Api.MESSAGES,
}
_TELLS_LIKELIHOODS = frozenset({"prompt_logprobs", "logprob_start_len", "logprobs"})
_SELDOM = frozenset({"cache_salt", "lora_path", "extra_key", "session_id"})
_OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def api_of_path(path: str) -> Api:
    """The API that a request path stands for; one trailing slash makes no difference."""
    return _API_OF_PATH.get(path.removesuffix("/"), Api.OTHER)


class RequestView(NamedTuple):
    """The fields that routing looks at, beside the whole parsed body.

    Attributes:
        model: as the request names it; None where it names none.
        max_output_tokens: the most tokens asked for; None where that is left open.
        cache_salt: keeps this request's cache apart from that of other salts.
        adapter: of SGLang's field ``lora_path``.
        extra_key: SGLang's field, which keeps caches apart as well.
        session_id: the conversation, where the client names it.
    """

    api: Api
    model: str | None
    is_streaming: bool
    max_output_tokens: int | None
    cache_salt: str | None
    adapter: str | None
    extra_key: str | None
    session_id: str | None
    body: Mapping[str, object]


def view_request(api: Api, body: bytes) -> RequestView:
    """Parse a body and pick the fields; O(body).

    Raises:
        MalformedRequestError: the body is not JSON, is nested too deeply to parse, or is no object.
    """
    fields = _parse_object(body)
    model, is_streaming = _text(fields.get("model")), fields.get("stream") is True
    limit = _max_output_tokens(fields)
    if _SELDOM.isdisjoint(fields):
        return RequestView(api, model, is_streaming, limit, None, None, None, None, fields)
    return RequestView(
        api=api,
        model=model,
        is_streaming=is_streaming,
        max_output_tokens=limit,
        cache_salt=_text(_only(fields.get("cache_salt"))),
        adapter=_text(_only(fields.get("lora_path"))),
        extra_key=_text(_only(fields.get("extra_key"))),
        session_id=_text(fields.get("session_id")),
        body=fields,
    )


def _parse_object(body: bytes) -> dict[str, object]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = _parse_as_engines_do(body)
    if not isinstance(parsed, dict):
        raise MalformedRequestError(f"the request body must be a JSON object, not {_kind(parsed)}")
    return parsed


def _parse_as_engines_do(body: bytes) -> object:
    """Parse what the fast parser refuses and the standard one takes: NaN, lone surrogates, a byte order mark."""
    try:
        return json.loads(body)
    except RecursionError as error:
        raise MalformedRequestError("the request body is nested too deeply") from error
    except ValueError as error:
        raise MalformedRequestError(f"the request body is not valid JSON: {error}") from error


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _only(value: object) -> object:
    """The element of a list of one (engines take lists of salts beside batches), else the value."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _max_output_tokens(fields: Mapping[str, object]) -> int | None:
    for name in _OUTPUT_LIMITS:
        if (limit := _count(fields.get(name))) is not None:
            return limit
    sampling = fields.get("sampling_params")
    return _count(sampling.get("max_new_tokens")) if isinstance(sampling, dict) else None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def computes_whole_prompt(view: RequestView) -> bool:
    """Whether the engine computes every token of the prompt, cached or not, to tell how likely each was.

    Source: vLLM (``prompt_logprobs``, or ``logprobs`` of an echoed completion); SGLang (``return_logprob`` from
    a place in the prompt on).
    """
    body = view.body
    if _TELLS_LIKELIHOODS.isdisjoint(body):
        return False
    asked = body.get("prompt_logprobs")  # of all tokens where it is below 0
    if isinstance(asked, int) and not isinstance(asked, bool):
        return True
    if view.api is Api.GENERATE:
        start = _count(body.get("logprob_start_len"))
        return start is not None and body.get("return_logprob") is True
    return body.get("echo") is True and _count(body.get("logprobs")) is not None
