"""A chat body turned into what its template is given, as SGLang does it.

    user           role and content, no more
    others         role, content, tool_call_id, name, phase, reasoning_content, tool_calls; what is null is left out
    content        null is nothing; a string stays one; texts of a list are joined with blanks, or kept as parts
    tool calls     arguments become objects; no calls at all stay a list of none
    tools          {type, function, defer_loading}, the function's fields as they were sent; none under tool_choice
                   none, the one that tool_choice names alone
    effort         also says by two names whether the model is to think
    last word      the assistant's is the user's, as it stands

What SGLang refuses, or goes on with from a half-said word, is refused here.

Source: SGLang 0.5.23 (``serving_chat``, ``protocol``, ``jinja_template_utils``), read. Releases differ, so these rules
are used only where an engine has shown that its tokens are these (`FURTHER_PROBES`).
"""

import json
from collections.abc import Mapping
from typing import NoReturn

from prompt.content_format import ContentFormat
from prompt.conversation import Conversation, Message
from prompt.errors import NoTokensError, NoTokensReason

_ROLES = frozenset(
    {"system", "assistant", "tool", "function", "developer", "latest_reminder", "root"}
)
_FIELDS = ("tool_call_id", "name", "phase", "reasoning_content", "tool_calls")
_FUNCTION_FIELDS = ("description", "name", "parameters")
_OPTIONAL_FUNCTION_FIELDS = ("strict", "defer_loading")


def read_sglang_conversation(body: Mapping[str, object], wanted: ContentFormat) -> Conversation:
    """Read a chat body for a template that SGLang takes to want its content in the form ``wanted``. O(messages).

    Raises:
        NoTokensError: the body is no chat, or one that SGLang makes tokens of in a way that is not known here.
    """
    if body.get("chat_template") is not None:
        raise NoTokensError(NoTokensReason.OWN_TEMPLATE, "the request brings a chat template")
    for name in ("input_ids", "reasoning"):
        if body.get(name) is not None:
            _unsupported(f"{name} is given")
    if body.get("continue_final_message") is True:
        _unsupported("the last message is to be gone on with")
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        _refuse("messages is no list, or empty")
    messages = [_message(message, wanted) for message in given]
    last = messages[-1]
    if last["role"] == "assistant" and isinstance(last["content"], str):
        messages[-1] = {"role": "user", "content": last["content"]}
    return Conversation(
        messages=messages,
        num_chars=sum(_num_chars(message["content"]) for message in messages),
        tools=_tools(body),
        variables=_variables(body),
        has_generation_prompt=True,
        is_continued=False,
    )


def _refuse(detail: str) -> NoReturn:
    raise NoTokensError(NoTokensReason.NOT_A_PROMPT, detail)


def _unsupported(detail: str) -> NoReturn:
    raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, detail)


def _message(message: object, wanted: ContentFormat) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        _refuse("a message is no object with a role")
    role, content = message["role"], message.get("content")
    if role == "user":
        if content is None:
            _refuse("a user says nothing")
        return {"role": role, "content": _content(content, wanted)}
    if (role := role.lower()) not in _ROLES:
        _refuse("a role that is not known")
    if message.get("prefix") or message.get("tools"):
        _unsupported("a message has tools, or is to be gone on with")
    fields = {name: message[name] for name in _FIELDS if message.get(name) is not None}
    if "tool_calls" in fields:
        fields["tool_calls"] = _calls(fields["tool_calls"])
    said = "" if content is None else _content(content, wanted)
    if isinstance(said, list) and role == "tool":
        said = " ".join(part["text"] for part in said)
    if isinstance(content, list) and wanted is ContentFormat.PARTS:
        return {"role": role, **fields, "content": said}
    return {"role": role, "content": said, **fields}


def _content(content: object, wanted: ContentFormat) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        _refuse("content is neither text nor a list of parts")
    texts = [_text(part) for part in content]
    if wanted is ContentFormat.STRING:
        return " ".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _text(part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case dict():
            _unsupported("a part of content is not text")
        case _:
            _refuse("a part of content is not an object")


def _calls(calls: object) -> list[dict[str, object]]:
    if not isinstance(calls, list):
        _refuse("tool_calls is not a list")
    return [_call(call) for call in calls]


def _call(call: object) -> dict[str, object]:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        _refuse("a tool call names no function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            _refuse("the arguments of a tool call are not JSON")
        if not isinstance(arguments, dict):
            _refuse("the arguments of a tool call are no object")
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _tools(body: Mapping[str, object]) -> list[dict[str, object]] | None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if not tools or choice == "none":
        return None
    if not isinstance(tools, list):
        _refuse("tools is not a list")
    found = [_tool(tool) for tool in tools]
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        found = [
            tool for tool, (_, one) in zip(found, map(_named, tools), strict=True) if one == name
        ]
    return found or None


def _named(tool: object) -> tuple[dict[str, object], str]:
    """A tool's function, and its name."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
        _refuse("a tool has no name")
    return function, name


def _tool(tool: object) -> dict[str, object]:
    sent, _ = _named(tool)
    assert isinstance(tool, dict)
    told: dict[str, object] = {name: sent.get(name) for name in _FUNCTION_FIELDS}
    told |= {name: sent[name] for name in _OPTIONAL_FUNCTION_FIELDS if sent.get(name) is not None}
    if tool.get("defer_loading") is not None:
        told.setdefault("defer_loading", tool["defer_loading"])
    order = [name for name in sent if name in told]
    function = {name: told[name] for name in [*order, *(n for n in told if n not in sent)]}
    return {
        "type": tool.get("type", "function"),
        "function": function,
        "defer_loading": tool.get("defer_loading"),
    }


def _variables(body: Mapping[str, object]) -> dict[str, object]:
    given, effort = body.get("chat_template_kwargs"), body.get("reasoning_effort")
    if given is not None and not isinstance(given, dict):
        _refuse("chat_template_kwargs is no object")
    variables: dict[str, object] = {}
    if effort is not None:
        thinks = effort != "none"
        variables = {"thinking": thinks, "enable_thinking": thinks, "reasoning_effort": effort}
    return variables | (given or {})


def _num_chars(content: object) -> int:
    if isinstance(content, list):
        return sum(len(part["text"]) for part in content)
    return len(content) if isinstance(content, str) else 0
