"""Answers of the OpenAI APIs, as vLLM writes them: chat completions and completions.

The parts of a chunk that never change are encoded once an answer; a chunk costs one encoded string.
"""

from typing import Any

import orjson

from worker.call import Call
from worker.progress import Progress
from worker.request import Usage

DONE = b"data: [DONE]\n\n"


class ChatFormat:
    """``/v1/chat/completions``."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._prefix = _prefix(call, "chat.completion.chunk")

    def opening(self) -> bytes:
        """The role chunk."""
        prompt_ids = self._call.request.prompt if self._call.wants_token_ids else None
        delta = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return b'%s[%s],"prompt_token_ids":%s}\n\n' % (
            self._prefix,
            delta,
            orjson.dumps(prompt_ids),
        )

    def chunk(self, progress: Progress) -> bytes:
        """A content chunk; the last one carries the reason to finish."""
        return (
            b'%s[{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":%s%s}]}\n\n'
            % (
                self._prefix,
                orjson.dumps(progress.new_text),
                orjson.dumps(progress.finish),
                _token_ids(self._call, progress),
            )
        )

    def closing(self, progress: Progress) -> bytes:
        """The usage chunk where asked for, and the end marker."""
        return _closing(self._call, self._prefix, progress)

    def whole(self, progress: Progress) -> bytes:
        """The chat completion."""
        message = {"role": "assistant", "content": progress.text, "refusal": None}
        return _whole(self._call, "chat.completion", {"message": message}, progress)


class CompletionFormat:
    """``/v1/completions``."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._prefix = _prefix(call, "text_completion")

    def opening(self) -> bytes:
        """Nothing comes before the first chunk."""
        return b""

    def chunk(self, progress: Progress) -> bytes:
        """A text chunk; the last one carries the reason to finish."""
        return b'%s[{"index":0,"text":%s,"logprobs":null,"finish_reason":%s%s}]}\n\n' % (
            self._prefix,
            orjson.dumps(progress.new_text),
            orjson.dumps(progress.finish),
            _token_ids(self._call, progress),
        )

    def closing(self, progress: Progress) -> bytes:
        """The usage chunk where asked for, and the end marker."""
        return _closing(self._call, self._prefix, progress)

    def whole(self, progress: Progress) -> bytes:
        """The completion."""
        return _whole(self._call, "text_completion", {"text": progress.text}, progress)


def _head(call: Call, kind: str) -> dict[str, Any]:
    return {
        "id": call.response_id,
        "object": kind,
        "created": call.created,
        "model": call.model_name,
    }


def _prefix(call: Call, kind: str) -> bytes:
    """A chunk up to its choices."""
    return b'data: %s,"choices":' % orjson.dumps(_head(call, kind))[:-1]


def _token_ids(call: Call, progress: Progress) -> bytes:
    return b',"token_ids":%s' % orjson.dumps(progress.new_ids) if call.wants_token_ids else b""


def _closing(call: Call, prefix: bytes, progress: Progress) -> bytes:
    if not call.wants_usage:
        return DONE
    usage = orjson.dumps(_usage(progress.usage, len(progress.token_ids)))
    return b'%s[],"usage":%s}\n\n%s' % (prefix, usage, DONE)


def _whole(call: Call, kind: str, content: dict[str, Any], progress: Progress) -> bytes:
    choice = {
        "index": 0,
        **content,
        "logprobs": None,
        "finish_reason": progress.finish,
        "stop_reason": None,
        "token_ids": progress.token_ids if call.wants_token_ids else None,
    }
    return orjson.dumps(
        {
            **_head(call, kind),
            "choices": [choice],
            "usage": _usage(progress.usage, len(progress.token_ids)),
            "prompt_token_ids": call.request.prompt if call.wants_token_ids else None,
        }
    )


def _usage(usage: Usage, num_completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + num_completion,
        "completion_tokens": num_completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
