"""The first item of a chat that is not text: an image, a sound, a video, or a part of unknown kind.

It stands for tokens that only the engine can make, and whose number is unknown here. What comes before it is
the same whatever it is. To find where that ends, a chat is rendered twice: with a mark in the place of the
item, and with the item as engines hand it to templates (a template that takes strings gets another mark,
after the texts of the message; where such engines put a placeholder is their own business).
"""

from collections.abc import Mapping
from typing import NamedTuple

from prompt.content_format import ContentFormat
from prompt.conversation import Message, is_plain, is_text_part

MARK = "\ue000"
OTHER_MARK = "\ue001"

_KINDS = ("image", "audio", "video")


class FirstItem(NamedTuple):
    """Where a chat stops being text.

    Attributes:
        body: the chat with `MARK` in the item's place; what follows in the message is gone, and so are the
            items of later messages.
        kind: as templates know it: image, audio or video; None for any other.
        is_plain: whether every engine renders alike what comes before it.
    """

    body: Mapping[str, object]
    kind: str | None
    is_plain: bool


def find_first_item(body: Mapping[str, object], wanted: ContentFormat) -> FirstItem | None:
    """The first item; None where the chat has none. O(messages)."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return None
    for index, message in enumerate(messages):
        parts = message.get("content") if isinstance(message, dict) else None
        if not isinstance(parts, list):
            continue
        place = next((i for i, part in enumerate(parts) if not is_text_part(part)), None)
        if place is None:
            continue
        before = messages[:index]
        item = {**message, "content": _marked(parts[:place], wanted)}
        later = [_without_items(one) for one in messages[index + 1 :]]
        plain = {**body, "messages": [*before, {**message, "content": ""}]}
        return FirstItem(
            {**body, "messages": [*before, item, *later], "continue_final_message": False},
            _kind(parts[place]),
            place <= 1 and is_plain(plain),
        )
    return None


def with_item(messages: list[Message], kind: str | None) -> list[Message]:
    """The messages with the item itself, or another mark, in the place of the mark."""
    return [{**message, "content": _replaced(message["content"], kind)} for message in messages]


def _marked(texts: list[object], wanted: ContentFormat) -> object:
    if wanted is ContentFormat.PARTS or not texts:
        return [*texts, MARK]
    *earlier, last = texts
    text = last.get("text") if isinstance(last, dict) else last
    return [*earlier, f"{text}{MARK}" if isinstance(text, str) else MARK]


def _without_items(message: object) -> object:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [part for part in message["content"] if is_text_part(part)]}


def _kind(part: object) -> str | None:
    name = part.get("type") if isinstance(part, dict) else None
    return next((kind for kind in _KINDS if isinstance(name, str) and kind in name), None)


def _replaced(content: object, kind: str | None) -> object:
    if isinstance(content, str):
        return content.replace(MARK, OTHER_MARK)
    if isinstance(content, list):
        item = {"type": "text", "text": OTHER_MARK} if kind is None else {"type": kind}
        return [item if part.get("text") == MARK else part for part in content]
    return content
