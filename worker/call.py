"""A request for tokens, read from its body and headers and found good."""

import asyncio
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from prompt import Api, PromptModel, RequestView, view_request
from prompt.tokenizer import unpack_tokens
from worker.adapters import Adapter
from worker.api_error import ApiError, bad_request
from worker.config import WorkerConfig
from worker.flavour import Flavour
from worker.request import EngineRequest

DEFAULT_MAX_TOKENS = 16
_INLINE_BODY_BYTES = 64 << 10
_ID_PREFIX = {Api.CHAT: "chatcmpl-", Api.COMPLETIONS: "cmpl-", Api.GENERATE: ""}
_CLIENT_ID = re.compile(r"[\x21-\x7e]{1,128}")
_LIMIT_FIELDS = {
    Api.CHAT: ("max_completion_tokens", "max_tokens"),
    Api.COMPLETIONS: ("max_tokens",),
    Api.GENERATE: ("max_new_tokens",),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        client_id: what ``x-request-id`` said, or an id of our own.
        response_id: the id in the answer.
        created: wall clock, whole seconds since the epoch.
        dp_rank: as asked for; None = any.
    """

    view: RequestView
    model_name: str
    request: EngineRequest
    client_id: str
    response_id: str
    created: int
    dp_rank: int | None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        options = self.view.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def wants_token_ids(self) -> bool:
        """Whether the answer names the ids of prompt and answer."""
        return self.view.body.get("return_token_ids") is True


class CallReader:
    """Reads requests as one worker's engine would."""

    def __init__(self, config: WorkerConfig, model: PromptModel) -> None:
        self._config = config
        self._model = model
        self._adapters = config.adapters

    async def read(self, api: Api, body: bytes, headers: Mapping[str, str]) -> Call:
        """Read one request; a long body is rendered and tokenized in a thread.

        Raises:
            MalformedRequestError, NoTokensError, ApiError: it is no request that can be served.
        """
        view = view_request(api, body)
        self._check_fields(view)
        adapter = self._adapter(view)
        max_new_tokens = _max_new_tokens(view)
        if len(body) > _INLINE_BODY_BYTES:
            prompt = await asyncio.to_thread(self._prompt, view)
        else:
            prompt = self._prompt(view)
        self._check_length(len(prompt), max_new_tokens)
        own_id = uuid.uuid4().hex
        client_id = _client_id(view, headers) or own_id
        request = EngineRequest(
            own_id,
            prompt,
            max_new_tokens,
            extra_key=self._extra_key(view, adapter),
            cache_salt=_unicode(view.cache_salt, "cache_salt"),
            session_id=self._session_id(view, headers),
            priority=_priority(view),
        )
        return Call(
            view,
            self._config.model_name if adapter is None else adapter.name,
            request,
            client_id,
            _ID_PREFIX[api] + client_id,
            int(time.time()),
            self._rank(view, headers),
        )

    def _extra_key(self, view: RequestView, adapter: Adapter | None) -> str | None:
        """A namespace of SGLang's, and an adapter's; vLLM knows no such field, and ignores it."""
        if self._config.engine is Flavour.VLLM:
            return None
        own = _unicode(_text(view, "extra_key"), "extra_key")
        return own if adapter is None else adapter.extra_key(own)

    def _adapter(self, view: RequestView) -> Adapter | None:
        """The adapter that the request names as its model, alone or behind it, or else as its path.

        Raises:
            ApiError: there is no such model, or adapter.
        """
        name, own = view.body.get("model"), self._config.model_name
        if view.api is not Api.GENERATE and "model" in view.body and name != own:
            base, _, behind = str(name).partition(":")
            found = self._adapters.get(behind if behind and base == own else str(name))
            if found is None:
                message = f"The model `{name}` does not exist."
                raise ApiError(HTTPStatus.NOT_FOUND, message, "model")
            return found
        path = _text(view, "lora_path")
        if path is None or self._config.engine is Flavour.VLLM:
            return None
        if path not in self._adapters:
            raise bad_request(f"The LoRA adapter `{path}` is not loaded.", "lora_path")
        return self._adapters[path]

    def _session_id(self, view: RequestView, headers: Mapping[str, str]) -> str | None:
        """Of the body; for vLLM, of a header too."""
        session_id = _unicode(view.session_id, "session_id")
        if session_id is None and self._config.engine is Flavour.VLLM:
            return headers.get("x-session-id")
        return session_id

    def _prompt(self, view: RequestView) -> tuple[int, ...]:
        prompt = tuple(unpack_tokens(self._model.whole_prompt(view).tokens))
        if not prompt:
            raise bad_request("The prompt is empty.")
        return prompt

    def _check_fields(self, view: RequestView) -> None:
        """Refuse what would be answered wrongly; fields that only shape the sampling are ignored."""
        if view.body.get("n") not in (None, 1):
            raise bad_request("Only one answer a request is served: n must be 1.", "n")
        if not isinstance(view.body.get("stream", False), bool | None):
            raise bad_request("stream must be true or false.", "stream")

    def _check_length(self, num_prompt: int, max_new_tokens: int) -> None:
        limit = self._config.context_tokens
        if num_prompt + max_new_tokens > limit:
            raise bad_request(
                f"This model's maximum context length is {limit} tokens. However, your prompt has "
                f"{num_prompt} tokens and asks for {max_new_tokens} more.",
                "max_tokens" if num_prompt < limit else "input_tokens",
            )

    def _rank(self, view: RequestView, headers: Mapping[str, str]) -> int | None:
        """Header before field; a header that is no number is ignored, as vLLM does. ``/generate`` reads the fields
        alone, as SGLang's does, and vLLM the header alone."""
        raw = headers.get("x-data-parallel-rank", "").strip()
        rank: object = None
        if view.api is not Api.GENERATE and raw.isascii() and raw.isdigit():
            rank = int(raw)
        elif self._config.engine is Flavour.SGLANG:
            fields = (view.body.get(name) for name in ("routed_dp_rank", "data_parallel_rank"))
            rank = next((value for value in fields if value is not None), None)
        if rank is None:
            return None
        if (
            not isinstance(rank, int)
            or isinstance(rank, bool)
            or not 0 <= rank < self._config.dp_size
        ):
            raise bad_request(
                f"data_parallel_rank {rank} is out of range [0, {self._config.dp_size})."
            )
        return rank


def _max_new_tokens(view: RequestView) -> int:
    fields: object = view.body
    if view.api is Api.GENERATE:
        fields = view.body.get("sampling_params") or {}
        if not isinstance(fields, dict):
            raise bad_request("sampling_params must be an object.", "sampling_params")
    assert isinstance(fields, Mapping)
    for name in _LIMIT_FIELDS[view.api]:
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise bad_request(f"{name} must be a whole number of at least 1.", name)
        return value
    return DEFAULT_MAX_TOKENS


def _priority(view: RequestView) -> int:
    """How long its pages stay where the tree evicts by priority; nothing else follows from it."""
    value = view.body.get("priority")
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request("priority must be a whole number.", "priority")
    return value


def _client_id(view: RequestView, headers: Mapping[str, str]) -> str | None:
    """``rid`` of /generate, else the header; None where there is none fit to be sent back."""
    value = _text(view, "rid") if view.api is Api.GENERATE else None
    value = value or headers.get("x-request-id")
    return value if value is not None and _CLIENT_ID.fullmatch(value) else None


def _unicode(text: str | None, field: str) -> str | None:
    """A text that can be hashed and published: without lone surrogates."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise bad_request(f"{field} is not Unicode.", field) from error
    return text


def _text(view: RequestView, field: str) -> str | None:
    value = view.body.get(field)
    return value if isinstance(value, str) and value else None
