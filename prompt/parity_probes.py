"""What both sides are asked to tokenize where it is to be proved that they make the same tokens.

Cases, accents, other scripts, digits, an emoji, white space, quotes; as a text, and as chats of one turn and of several.
"""

from collections.abc import Mapping

from prompt.view import Api

_TEXT = "Grüße, 世界! It's 1,234.5 🙂\n\tdef f(x): return x**2  # don't"
PARITY_PROBES: tuple[tuple[Api, str, Mapping[str, object]], ...] = (
    (Api.COMPLETIONS, "a text", {"prompt": _TEXT}),
    (Api.CHAT, "a chat", {"messages": [{"role": "user", "content": _TEXT}]}),
    (
        Api.CHAT,
        "a chat of several turns",
        {
            "messages": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": _TEXT},
                {"role": "assistant", "content": "So?"},
                {"role": "user", "content": "And then?"},
            ]
        },
    ),
)
"""API, what it is, and the fields of the body."""
