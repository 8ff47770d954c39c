"""``/tokenize`` and ``/detokenize``, in vLLM's shape: what the engine makes of a text, and back."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from prompt import Api, PromptModel, RequestView, view_request
from prompt.tokenizer import unpack_tokens
from worker.api_error import bad_request
from worker.body import read_body
from worker.config import WorkerConfig
from worker.json_response import json_response


class TokenRoutes:
    """Long texts are tokenized in a thread."""

    def __init__(self, config: WorkerConfig, model: PromptModel) -> None:
        self._config = config
        self._model = model

    async def tokenize(self, request: Request) -> Response:
        """Token ids of ``prompt``, or of ``messages`` as the chat template renders them.

        Raises:
            ApiError, MalformedRequestError, NoTokensError: it holds neither.
        """
        body = await read_body(request.receive, self._config.max_body_bytes)
        view = view_request(Api.CHAT, body)
        if "messages" not in view.body:
            view = view_request(Api.COMPLETIONS, body)
        return json_response(await asyncio.to_thread(self._tokenized, view))

    async def detokenize(self, request: Request) -> Response:
        """The text of ``tokens``.

        Raises:
            ApiError, MalformedRequestError: they are no list of ids of this vocabulary.
        """
        body = await read_body(request.receive, self._config.max_body_bytes)
        tokens = view_request(Api.OTHER, body).body.get("tokens")
        if not isinstance(tokens, list) or not all(self._is_id(token) for token in tokens):
            raise bad_request("tokens must be a list of token ids.", "tokens")
        return json_response({"prompt": self._model.decode(tokens)})

    def _tokenized(self, view: RequestView) -> dict[str, Any]:
        tokens = unpack_tokens(self._model.whole_prompt(view).tokens)
        wants_texts = view.body.get("return_token_strs") is True
        return {
            "count": len(tokens),
            "max_model_len": self._config.context_tokens,
            "tokens": tokens,
            "token_strs": [self._model.decode([token]) for token in tokens]
            if wants_texts
            else None,
        }

    def _is_id(self, token: object) -> bool:
        return (
            isinstance(token, int)
            and not isinstance(token, bool)
            and 0 <= token < self._model.vocab_size
        )
