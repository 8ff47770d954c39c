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

_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at": "界", "n": 1.5}'},
}
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks <at> it & tells.",
            "parameters": {
                "type": "object",
                "properties": {"at": {"type": "string"}},
                "required": ["at"],
            },
        },
    },
    {"type": "function", "function": {"name": "wait", "strict": True}},
]
FURTHER_PROBES: tuple[tuple[str, Mapping[str, object]], ...] = (
    (
        "a chat with tools",
        {
            "tools": _TOOLS,
            "messages": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": _TEXT},
                {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "It is there."},
                {"role": "user", "content": "And then?"},
            ],
        },
    ),
    (
        "a chat of parts",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": one} for one in ("Look:", _TEXT)],
                }
            ]
        },
    ),
    (
        "a chat that the assistant ends",
        {
            "reasoning_effort": "low",
            "messages": [
                {"role": "user", "content": _TEXT},
                {"role": "assistant", "content": "So?"},
            ],
        },
    ),
)
"""What engines make of chats differently: what it is, and the fields of the body."""
