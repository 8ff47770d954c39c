"""The one prompt of a completion or generate body: a text, or token ids that need no tokenizer.

A batch of one is a prompt; several prompts have no tokens of their own. Fields beside the prompt that change what
the engine sees of it leave none either.
"""

from collections.abc import Mapping, Sequence

from prompt.conversation import is_text_part
from prompt.errors import NoTokensError, NoTokensReason
from prompt.view import Api, RequestView
from protocol import TokenBytes, TokenRangeError, pack_tokens

_UNSUPPORTED_FIELDS = frozenset(
    {
        "prompt_embeds",
        "input_embeds",
        "image_data",
        "audio_data",
        "video_data",
        "truncate_prompt_tokens",
    }
)


def given_tokens(view: RequestView) -> TokenBytes | None:
    """The ids that a request brings itself, whatever its model; None where there is something to encode. O(ids).

    Ids of a chat (`transferred_ids`) are left out: not every engine reads them.

    Raises:
        NoTokensError: there is no one prompt, with a tokenizer or without.
    """
    if view.api not in (Api.COMPLETIONS, Api.GENERATE):
        return None
    refuse_further_content(view.body)
    prompt = single_prompt(view)
    return None if isinstance(prompt, str) else prompt


def transferred_ids(body: Mapping[str, object]) -> list[object] | None:
    """The ids of a chat that another engine has made already (``kv_transfer_params``); None where there are none, or
    vLLM leaves them alone: where the prompt is to be echoed, or is not text alone."""
    transfer = body.get("kv_transfer_params")
    ids = transfer.get("prompt_token_ids") if isinstance(transfer, dict) else None
    if not isinstance(ids, list) or not ids or body.get("echo") is True or _has_items(body):
        return None
    return ids


def _has_items(body: Mapping[str, object]) -> bool:
    messages = body.get("messages")
    contents = [
        message.get("content")
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict)
    ]
    return not all(is_text_part(part) for one in contents if isinstance(one, list) for part in one)


def single_prompt(view: RequestView) -> str | TokenBytes:
    """Text, or packed ids, of a completion or generate body.

    Raises:
        NoTokensError: there is none, or several, or an id is not one, or it is to be joined with what follows.
    """
    body = view.body
    if view.api is Api.COMPLETIONS:
        if body.get("suffix") is not None:
            raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a middle is to be filled in")
        prompt = body.get("prompt")
    else:
        text = body.get("text")
        prompt = body.get("input_ids") if text is None else text
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    match prompt:
        case str():
            return prompt
        case [str() | list(), *_]:
            raise NoTokensError(NoTokensReason.BATCHED_PROMPT, "the request holds several prompts")
        case [_, *_]:
            return packed_ids(prompt)
        case _:
            raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "there is no prompt")


def packed_ids(ids: Sequence[object]) -> TokenBytes:
    """Ids as they stand in the body.

    Raises:
        NoTokensError: one of them is no token id.
    """
    try:
        return pack_tokens(ids)  # type: ignore[arg-type]  # what is no number is refused there
    except (TypeError, TokenRangeError) as error:
        raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "a token id is not one") from error


def refuse_further_content(body: Mapping[str, object]) -> None:
    """See to it that the prompt is all that the engine sees, and whole.

    Raises:
        NoTokensError: embeddings, media beside the text, or truncation.
    """
    if _UNSUPPORTED_FIELDS.isdisjoint(body):
        return
    if any(body.get(name) is not None for name in _UNSUPPORTED_FIELDS):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "the prompt is not its text alone")
