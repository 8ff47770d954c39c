"""One request of a workload, ready to be sent at its time, and the bodies that traces become."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson


class PromptForm(StrEnum):
    """How a synthetic prompt is sent.

    TOKENS: ids on /v1/completions, so that block boundaries are exact.
    TEXT: text on /v1/completions that tokenizes to those ids, but for a leading special token.
    CHAT: the same text as the one message of a chat.
    GENERATE: ids on SGLang's /generate.
    """

    TOKENS = "tokens"
    TEXT = "text"
    CHAT = "chat"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """A request and when it starts.

    Attributes:
        at_s: seconds from the start of the workload.
        path: on the server, with a leading slash.
        body: JSON, as sent.
        group: what it belongs to (a conversation, a burst), for reports and tests.
    """

    at_s: float
    path: str
    body: bytes
    group: str = ""


def completion(
    model: str, prompt: Sequence[int] | str, max_tokens: int | None, *, is_streaming: bool = True
) -> tuple[str, bytes]:
    """Path and body of a completion from ids or text. ``max_tokens`` None leaves it to the server."""
    return "/v1/completions", _body({"model": model, "prompt": prompt}, max_tokens, is_streaming)


def chat(
    model: str,
    messages: Sequence[Mapping[str, object]],
    max_tokens: int | None,
    *,
    is_streaming: bool = True,
    user: str | None = None,
) -> tuple[str, bytes]:
    """Path and body of a chat; ``user`` names who has it."""
    fields = {"model": model, "messages": messages} | ({} if user is None else {"user": user})
    return "/v1/chat/completions", _body(fields, max_tokens, is_streaming)


def generate(
    input_ids: Sequence[int], max_tokens: int | None, *, is_streaming: bool = True
) -> tuple[str, bytes]:
    """Path and body of SGLang's own call, from ids."""
    sampling = {"temperature": 0} | ({} if max_tokens is None else {"max_new_tokens": max_tokens})
    fields = {"input_ids": input_ids, "sampling_params": sampling, "stream": is_streaming}
    return "/generate", orjson.dumps(fields)


def _body(fields: Mapping[str, object], max_tokens: int | None, is_streaming: bool) -> bytes:
    """A streamed answer is asked for its usage."""
    whole = {**fields, "temperature": 0, "stream": is_streaming}
    if max_tokens is not None:
        whole["max_tokens"] = max_tokens
    if is_streaming:
        whole["stream_options"] = {"include_usage": True}
    return orjson.dumps(whole)
