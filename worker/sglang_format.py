"""Answers of SGLang's own API, ``/generate``: every chunk repeats the text so far."""

from typing import Any

import orjson

from worker.call import Call
from worker.openai_format import DONE
from worker.progress import Progress


class GenerateFormat:
    """``/generate``."""

    def __init__(self, call: Call, dp_rank: int) -> None:
        self._call = call
        self._dp_rank = dp_rank

    def opening(self) -> bytes:
        """Nothing comes before the first chunk."""
        return b""

    def chunk(self, progress: Progress) -> bytes:
        """The answer so far."""
        return b"data: %s\n\n" % self.whole(progress)

    def closing(self, _progress: Progress, /) -> bytes:
        """The end marker; usage came with every chunk."""
        return DONE

    def whole(self, progress: Progress) -> bytes:
        """The answer so far, and where its prompt came from."""
        return orjson.dumps(
            {
                "text": progress.text,
                "output_ids": progress.token_ids,
                "meta_info": self._meta(progress),
            }
        )

    def _meta(self, progress: Progress) -> dict[str, Any]:
        usage = progress.usage
        length = len(progress.token_ids)
        return {
            "id": self._call.response_id,
            "finish_reason": {"type": progress.finish, "length": length}
            if progress.finish
            else None,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": length,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": {
                "device": usage.cached_device_tokens,
                "host": usage.cached_host_tokens,
                "storage": usage.cached_storage_tokens,
            },
            "dp_rank": self._dp_rank,
        }
