"""Stand-ins for the tokens of a prompt that cannot be tokenized here: four bytes of what the client wrote are one.

Prompts that begin alike have stand-ins that begin alike, so a router that remembers where it sent the one can send the
other there. No engine makes such ids (all are beyond 2²⁷, vocabularies far below), so what engines announce never
matches them, nor they it. How many there are is no more than a guess at the length of the prompt.
"""

import orjson

from prompt.chat_body import KEPT_BY_ENGINE
from prompt.view import Api, RequestView
from protocol import TokenBytes

_MAX_BYTES = 4 << 20
_FIELDS = {
    Api.CHAT: ("tools", "messages"),
    Api.MESSAGES: ("tools", "system", "messages"),
    Api.RESPONSES: ("tools", "instructions", "input"),
    Api.COMPLETIONS: ("prompt",),
    Api.GENERATE: ("text",),
}


def approximate_tokens(view: RequestView) -> TokenBytes | None:
    """Stand-ins; None for what holds no prompt, or not its beginning, is longer than 4 MiB, or is no proper text.
    O(prompt)."""
    if view.api is Api.RESPONSES and any(view.body.get(name) for name in KEPT_BY_ENGINE):
        return None
    fields = [view.body[name] for name in _FIELDS.get(view.api, ()) if view.body.get(name)]
    if not fields:
        return None
    try:
        written = orjson.dumps(fields)  # in which no control character stands as it is
    except orjson.JSONEncodeError:
        return None
    return TokenBytes(written[: len(written) // 4 * 4]) if len(written) <= _MAX_BYTES else None
