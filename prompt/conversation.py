"""A chat body turned into what its template is given, by the rules of the engines.

    content        null is nothing; a list is joined with newlines, or kept as parts, as the template wants
    tool calls     arguments become objects ({} where they are not valid JSON for one), no calls at all are dropped
    developer      becomes system where the template does not know the role; if a system message then stands
                   anywhere but first, all of them become one, in front, joined by an empty line
    tools          are rebuilt as {type, function: {name, description, parameters}}, whatever tool_choice says
    variables      chat_template_kwargs, documents and reasoning_effort reach the template as they are; an effort
                   also says whether the model is to think (``enable_thinking``)

A part that is not text (image, audio, …) stands for tokens that only the engine can make: such a chat has
tokens here up to its first one (`first_item`). Nothing of the body is changed; what differs is copied.

Source: vLLM 0.32, recorded. SGLang renders plain chats alike and differs beyond them: it joins the texts of
a list with blanks, leaves a string a string for templates that want parts, gives a tool's fields as they were sent
and no tools under tool_choice none, keeps the role developer, makes a user's of what the assistant said last, says
by two names whether the model is to think, and takes a chat's ``input_ids`` for its prompt (0.5.23, read).
`is_plain` tells plain chats, `sglang_chat` has the rules of a release.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from prompt.content_format import ContentFormat
from prompt.errors import NoTokensError, NoTokensReason

_TEXT_FIELD = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_OPTIONAL_FUNCTION_FIELDS = ("strict", "defer_loading")
_OF_SOME_ENGINES = frozenset(
    {
        "tools",
        "kv_transfer_params",
        "add_generation_prompt",
        "documents",
        "continue_final_message",
        "add_special_tokens",
        "reasoning_effort",
        "reasoning",
        "input_ids",
    }
)
# Fields of messages that one engine hands to the template and another does not.
_KEPT_OF_USERS = ("name",)
_KEPT_OF_OTHERS = (
    "tool_calls",
    "reasoning",
    "reasoning_content",
    "tool_call_id",
    "phase",
    "tools",
    "prefix",
)
_OF_SGLANG = ("reasoning_effort", "reasoning", "input_ids")
_PLAIN_ROLES = frozenset({"system", "user", "assistant"})
_UNUSUAL = frozenset(
    {
        "chat_template",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template_kwargs",
        "documents",
        "reasoning_effort",
    }
)
_REFUSED_VARIABLES = frozenset({"chat_template", "tokenize"})

Message = dict[str, object]


class Conversation(NamedTuple):
    """What a chat template is given.

    Attributes:
        num_chars: length of all texts in the messages, tools and variables not counted.
        variables: further names for the template, beside messages, tools and add_generation_prompt.
        is_continued: the last message is to be gone on with, not closed.
    """

    messages: list[Message]
    num_chars: int
    tools: list[dict[str, object]] | None
    variables: dict[str, object]
    has_generation_prompt: bool
    is_continued: bool


def read_conversation(
    body: Mapping[str, object], wanted: ContentFormat, *, knows_developer: bool
) -> Conversation:
    """Read a chat body for a template that wants its content in the form ``wanted``.

    O(messages). Continuing the last message leaves no place for a generation prompt.

    Args:
        knows_developer: the template mentions the role developer.

    Raises:
        NoTokensError: a part is not text, the request brings its own template, or the body is not a chat.
    """
    if _UNUSUAL.isdisjoint(body):
        given = _as_given(body.get("messages"), wanted)
        if given is not None:
            return given
    if body.get("chat_template") is not None:
        raise NoTokensError(NoTokensReason.OWN_TEMPLATE, "the request brings a chat template")
    messages = [_read_message(message, wanted) for message in _list(body, "messages")]
    if not messages:
        _refuse("messages is empty")
    if not knows_developer and any(message["role"] == "developer" for message in messages):
        messages = _without_developer(messages)
    is_continued = body.get("continue_final_message") is True
    return Conversation(
        messages=messages,
        num_chars=sum(_num_chars(message["content"]) for message in messages),
        tools=None
        if body.get("tools") is None
        else [_read_tool(tool) for tool in _list(body, "tools")],
        variables=_read_variables(body),
        has_generation_prompt=body.get("add_generation_prompt") is not False and not is_continued,
        is_continued=is_continued,
    )


def _as_given(messages: object, wanted: ContentFormat) -> Conversation | None:
    """A chat of messages that are role and text alone: they are what a template takes, which cannot change them.
    None for any other."""
    if wanted is not ContentFormat.STRING or type(messages) is not list or not messages:
        return None
    num_chars = 0
    for message in messages:
        if type(message) is not dict or len(message) != 2:
            return None
        first, second = message
        if first != "role" or second != "content":  # a template may show their order
            return None
        role, content = message["role"], message["content"]
        if type(content) is not str or type(role) is not str or role not in _PLAIN_ROLES:
            return None
        num_chars += len(content)
    return Conversation(
        messages, num_chars, None, {}, has_generation_prompt=True, is_continued=False
    )


def is_plain(body: Mapping[str, object]) -> bool:
    """Whether every engine renders the chat alike: strings said in turn, and no field of one engine's own.

    O(messages).
    """
    if not _OF_SOME_ENGINES.isdisjoint(body):
        if body.get("tools") is not None or body.get("kv_transfer_params") is not None:
            return False
        if body.get("add_generation_prompt") is False or body.get("documents") is not None:
            return False
        if body.get("continue_final_message") is True or body.get("add_special_tokens") is True:
            return False
        if any(body.get(name) is not None for name in _OF_SGLANG):
            return False
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(map(_is_plain_message, messages)):
        return False
    return not messages or messages[-1]["role"] != "assistant"


def is_text_part(part: object) -> bool:
    """Whether a part of a message's content is its text alone, or nothing that an engine could take."""
    if not isinstance(part, dict):
        return True
    kind = part.get("type")
    return isinstance(kind, str) and kind in _TEXT_FIELD and part.get("uuid") is None


def _is_plain_message(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    if isinstance(content, list) and not _is_one_text(content):
        return False
    role = message.get("role")
    if not isinstance(role, str) or role not in _PLAIN_ROLES:
        return False
    if len(message) == 2 and "content" in message:
        return True
    kept = _KEPT_OF_USERS if role == "user" else _KEPT_OF_OTHERS
    return all(message.get(name) is None for name in kept)


def _is_one_text(content: list[object]) -> bool:
    """Whether a list holds one part, a text: every engine takes it for the text alone."""
    match content:
        case [{"type": "text", "text": str()} as part]:
            return is_text_part(part)
        case _:
            return False


def _refuse(detail: str) -> NoReturn:
    raise NoTokensError(NoTokensReason.NOT_A_PROMPT, detail)


def _list(body: Mapping[str, object], name: str) -> list[object]:
    value = body.get(name)
    return value if isinstance(value, list) else _refuse(f"{name} is not a list")


def _read_message(message: object, wanted: ContentFormat) -> Message:
    if not isinstance(message, dict):
        _refuse("a message is not an object")
    role = message.get("role")
    if not isinstance(role, str):
        _refuse("a message has no role")
    # An engine hands tool results over as one string, whatever the template wants.
    content_form = ContentFormat.STRING if role == "tool" else wanted
    read: Message = {"role": role, "content": _read_content(message.get("content"), content_form)}
    if isinstance(message.get("name"), str):
        read["name"] = message["name"]
    match role:
        case "assistant":
            _add_assistant_fields(read, message)
        case "tool" if "tool_call_id" in message:
            read["tool_call_id"] = message["tool_call_id"]
        case "developer":
            read["tools"] = message.get("tools")
    return read


def _read_content(content: object, wanted: ContentFormat) -> str | list[dict[str, str]]:
    if isinstance(content, str) and wanted is ContentFormat.STRING:
        return content
    texts = _read_texts(content)
    if wanted is ContentFormat.STRING:
        return "\n".join(text for text in texts if text)
    return [{"type": "text", "text": text} for text in texts]


def _read_texts(content: object) -> list[str]:
    match content:
        case None:
            return []
        case str():
            return [content]
        case list():
            return [text for part in content if (text := _read_part(part)) is not None]
        case _:
            _refuse("content is neither text nor a list of parts")


def _read_part(part: object) -> str | None:
    """The text of one part; None for a part that the engine skips."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        _refuse("a part of content is not an object")
    if not is_text_part(part):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a part of content is not text")
    kind = part["type"]
    text = part.get(_TEXT_FIELD[kind])
    if text is None and kind in {"text", "refusal"}:
        return None
    return text if isinstance(text, str) else _refuse("the text of a part is not a string")


def _add_assistant_fields(read: Message, message: Mapping[str, object]) -> None:
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        read["tool_calls"] = [_read_tool_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        read["reasoning"] = read["reasoning_content"] = reasoning


def _read_tool_call(call: object) -> dict[str, object]:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        _refuse("a tool call names no function")
    return {
        **call,
        "function": {**function, "arguments": _read_arguments(function.get("arguments"))},
    }


def _read_arguments(arguments: object) -> dict[str, object]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}  # what engines make of it, too
    return arguments if isinstance(arguments, dict) else {}


def _without_developer(messages: list[Message]) -> list[Message]:
    """The messages with developer as system, merged into one where order would break templates."""
    renamed = [
        {"role": "system", **{k: v for k, v in message.items() if k not in {"role", "tools"}}}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
    systems = [message for message in renamed if message["role"] == "system"]
    if len(systems) == 1 and renamed[0]["role"] == "system":
        return renamed
    texts = [text for message in systems if (text := _joined(message["content"]))]
    merged: Message = {"role": "system", "content": "\n\n".join(texts)}
    return [merged, *(message for message in renamed if message["role"] != "system")]


def _joined(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return str(content)


def _read_tool(tool: object) -> dict[str, object]:
    if not isinstance(tool, dict) or not isinstance(function := tool.get("function"), dict):
        _refuse("a tool describes no function")
    if not isinstance(function.get("name"), str):
        _refuse("a tool has no name")
    rebuilt = {name: function.get(name) for name in ("name", "description", "parameters")}
    for name in _OPTIONAL_FUNCTION_FIELDS:
        if function.get(name) is not None:
            rebuilt[name] = function[name]
    return {"type": tool.get("type", "function"), "function": rebuilt}


def _read_variables(body: Mapping[str, object]) -> dict[str, object]:
    extra = body.get("chat_template_kwargs")
    if extra is None:
        variables: dict[str, object] = {}
    elif isinstance(extra, dict) and not _REFUSED_VARIABLES & extra.keys():
        variables = dict(extra)
    else:
        _refuse("chat_template_kwargs cannot be given to a template")
    effort = body.get("reasoning_effort")
    if effort not in (None, "auto") and "enable_thinking" not in variables:
        variables["enable_thinking"] = effort != "none"
    for name in ("documents", "reasoning_effort"):
        if body.get(name) not in (None, "auto"):
            variables[name] = body[name]
    return variables


def _num_chars(content: object) -> int:
    if isinstance(content, list):
        return sum(len(part["text"]) for part in content)
    return len(content) if isinstance(content, str) else 0
