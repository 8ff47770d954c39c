"""A request as an engine's ``/tokenize`` takes it, so that the engine says what its prompt's tokens are.

    chat, responses, messages   {"model", "messages", tools, …}: rendered by the engine's own template
    completions, generate       {"model", "prompt", "add_special_tokens"}

Asked for are prompts of text alone whose every field the route reads: an image would be fetched, and what is
left out would make other tokens.

Source: vLLM 0.32 (recorded, both forms). SGLang renders chats there as it does those that it serves (0.5.17 to 0.5.23,
read); releases that take the second form alone refuse the first.
"""

import json
from collections.abc import Mapping
from enum import StrEnum

from prompt.chat_body import ChatBody, chat_of_messages, chat_of_responses
from prompt.conversation import is_plain, is_text_part
from prompt.errors import NoTokensError, NoTokensReason
from prompt.single_prompt import refuse_further_content, single_prompt
from prompt.view import Api, RequestView


class AskedKind(StrEnum):
    """Whose prompts are asked about."""

    VLLM = "vllm"
    SGLANG = "sglang"
    BOTH = "both"  # what the two make alike


_SHARED_FIELDS = ("messages", "tools", "continue_final_message", "chat_template_kwargs")
_CHAT_FIELDS = {
    AskedKind.VLLM: (*_SHARED_FIELDS, "add_generation_prompt", "add_special_tokens"),
    AskedKind.SGLANG: (*_SHARED_FIELDS, "tool_choice", "reasoning_effort", "reasoning"),
    AskedKind.BOTH: _SHARED_FIELDS,
}
_NOT_ASKED_WITH = {
    AskedKind.VLLM: ("documents", "reasoning_effort"),
    AskedKind.SGLANG: ("input_ids",),
    AskedKind.BOTH: (),
}
_CHAT_APIS = frozenset({Api.CHAT, Api.MESSAGES, Api.RESPONSES})


def is_chat(api: Api) -> bool:
    """Whether requests of this API are rendered before they are tokenized."""
    return api in _CHAT_APIS


def tokenize_body(view: RequestView, kind: AskedKind) -> bytes:
    """The body for ``/tokenize``; O(prompt).

    Raises:
        NoTokensError: the route cannot tell the tokens of this request; the reason says why.
    """
    refuse_further_content(view.body)
    match view.api:
        case Api.CHAT:
            fields = _chat_fields(ChatBody(view.body, is_alike=True), kind)
        case Api.MESSAGES:
            fields = _chat_fields(chat_of_messages(view.body), kind)
        case Api.RESPONSES:
            fields = _chat_fields(chat_of_responses(view.body), kind)
        case _:
            fields = _text_fields(view)
    if view.model is not None:
        fields["model"] = view.model
    return json.dumps(fields).encode()


def _chat_fields(chat: ChatBody, kind: AskedKind) -> dict[str, object]:
    body = chat.body
    if body.get("chat_template") is not None:
        raise NoTokensError(NoTokensReason.OWN_TEMPLATE, "the request brings a chat template")
    is_alike = chat.is_alike or kind is AskedKind.VLLM
    if not is_alike or (kind is AskedKind.BOTH and not is_plain(body)):
        raise NoTokensError(
            NoTokensReason.UNSUPPORTED_CONTENT, "engines of the model differ on such chats"
        )
    if any(body.get(name) not in (None, "auto") for name in _NOT_ASKED_WITH[kind]):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a field that is not asked with")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "there are no messages")
    if not all(map(_is_text, messages)):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a part of content is not text")
    return {name: body[name] for name in _CHAT_FIELDS[kind] if body.get(name) is not None}


def _is_text(message: object) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    return not isinstance(content, list) or all(map(is_text_part, content))


def _text_fields(view: RequestView) -> dict[str, object]:
    prompt = single_prompt(view)
    if not isinstance(prompt, str):
        raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "there is nothing to encode")
    is_special = view.body.get("add_special_tokens") is not False
    return {"prompt": prompt, "add_special_tokens": is_special}
