"""A request as an engine's ``/tokenize`` takes it, so that the engine says what its prompt's tokens are.

    chat, responses, messages   {"model", "messages", tools, …}: rendered by the engine's own template
    completions, generate       {"model", "prompt", "add_special_tokens"}

Asked for are prompts of text alone whose every field the route reads: an image would be fetched, and what is
left out would make other tokens.

Source: vLLM 0.32 (recorded, both forms). SGLang takes the second form alone.
"""

import json
from collections.abc import Mapping

from prompt.chat_body import ChatBody, chat_of_messages, chat_of_responses
from prompt.conversation import is_plain, is_text_part
from prompt.errors import NoTokensError, NoTokensReason
from prompt.single_prompt import refuse_further_content, single_prompt
from prompt.view import Api, RequestView

_CHAT_FIELDS = (
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template_kwargs",
)
_CHAT_APIS = frozenset({Api.CHAT, Api.MESSAGES, Api.RESPONSES})


def is_chat(api: Api) -> bool:
    """Whether requests of this API are rendered before they are tokenized."""
    return api in _CHAT_APIS


def tokenize_body(view: RequestView, *, plain_only: bool) -> bytes:
    """The body for ``/tokenize``; O(prompt).

    Args:
        plain_only: refuse chats that engines render differently.

    Raises:
        NoTokensError: the route cannot tell the tokens of this request; the reason says why.
    """
    refuse_further_content(view.body)
    match view.api:
        case Api.CHAT:
            fields = _chat_fields(ChatBody(view.body, is_alike=True), plain_only=plain_only)
        case Api.MESSAGES:
            fields = _chat_fields(chat_of_messages(view.body), plain_only=plain_only)
        case Api.RESPONSES:
            fields = _chat_fields(chat_of_responses(view.body), plain_only=plain_only)
        case _:
            fields = _text_fields(view)
    if view.model is not None:
        fields["model"] = view.model
    return json.dumps(fields).encode()


def _chat_fields(chat: ChatBody, *, plain_only: bool) -> dict[str, object]:
    body = chat.body
    if body.get("chat_template") is not None:
        raise NoTokensError(NoTokensReason.OWN_TEMPLATE, "the request brings a chat template")
    if plain_only and not (chat.is_alike and is_plain(body)):
        raise NoTokensError(
            NoTokensReason.UNSUPPORTED_CONTENT, "engines of the model differ on such chats"
        )
    if body.get("documents") is not None or body.get("reasoning_effort") not in (None, "auto"):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a field that is not asked with")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "there are no messages")
    if not all(map(_is_text, messages)):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a part of content is not text")
    return {name: body[name] for name in _CHAT_FIELDS if body.get(name) is not None}


def _is_text(message: object) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    return not isinstance(content, list) or all(map(is_text_part, content))


def _text_fields(view: RequestView) -> dict[str, object]:
    prompt = single_prompt(view)
    if not isinstance(prompt, str):
        raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "there is nothing to encode")
    is_special = view.body.get("add_special_tokens") is not False
    return {"prompt": prompt, "add_special_tokens": is_special}
