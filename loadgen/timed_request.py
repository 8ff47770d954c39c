"""One request of a workload, ready to be sent at its time, and the bodies that traces become."""

from collections.abc import Sequence
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
    model: str, prompt: Sequence[int] | str, max_tokens: int, *, is_streaming: bool = True
) -> tuple[str, bytes]:
    """Path and body of a completion from ids or text."""
    fields = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    return "/v1/completions", orjson.dumps(fields | _stream_fields(is_streaming))


def chat(
    model: str,
    messages: Sequence[dict[str, str]],
    max_tokens: int,
    *,
    is_streaming: bool = True,
) -> tuple[str, bytes]:
    """Path and body of a chat."""
    fields = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
    return "/v1/chat/completions", orjson.dumps(fields | _stream_fields(is_streaming))


def generate(
    input_ids: Sequence[int], max_tokens: int, *, is_streaming: bool = True
) -> tuple[str, bytes]:
    """Path and body of SGLang's own call, from ids."""
    sampling = {"max_new_tokens": max_tokens, "temperature": 0}
    fields = {"input_ids": input_ids, "sampling_params": sampling, "stream": is_streaming}
    return "/generate", orjson.dumps(fields)


def _stream_fields(is_streaming: bool) -> dict[str, object]:
    if not is_streaming:
        return {"stream": False}
    return {"stream": True, "stream_options": {"include_usage": True}}
