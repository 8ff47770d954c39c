"""Bodies of other APIs as the chats that engines make of them.

    /v1/messages    system in front; a turn's text blocks; tool_use → tool calls; tool_result → tool messages,
                    before what else the turn says; thinking → reasoning; tools with their input_schema
    /v1/responses   instructions → system; input as one turn of the user, or as turns

What is no text stays a part of its kind, so that such a chat has tokens up to it. What engines are known to
convert differently from release to release, or keep from an earlier request, is refused.

Source: vLLM (``entrypoints/anthropic``, ``entrypoints/openai/responses``) and SGLang
(``entrypoints/anthropic/request_conversion``), read, not recorded. Where both do the same the chat is
alike; where they differ, the rules are vLLM's.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from prompt.errors import NoTokensError, NoTokensReason

# Claude Code's line with a hash of each request, which vLLM leaves out.
_BILLING = "x-anthropic-billing-header"
KEPT_BY_ENGINE = ("previous_response_id", "conversation", "prompt", "previous_input_messages")
_SAID_BY = frozenset({"user", "assistant"})


class ChatBody(NamedTuple):
    """A chat as `/v1/chat/completions` takes it.

    Attributes:
        is_alike: every engine makes this chat of the body.
    """

    body: Mapping[str, object]
    is_alike: bool


def chat_of_messages(body: Mapping[str, object]) -> ChatBody:
    """The chat of a body of Anthropic's API; O(blocks).

    Raises:
        NoTokensError: it is none, or engines differ on it from release to release.
    """
    config = body.get("output_config")
    if isinstance(config, dict) and config.get("effort") is not None:
        _refuse("an effort is asked for")
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        _refuse("it asks not to think, which engines try out how to say")
    turns = body.get("messages")
    if not isinstance(turns, list):
        raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "messages is not a list")
    messages, is_alike = _system(body.get("system"))
    is_alike &= body.get("thinking") is None and body.get("tools") is None
    for turn in turns:
        if not isinstance(turn, dict) or turn.get("role") not in _SAID_BY:
            _refuse("a message is said by neither user nor assistant")
        content = turn.get("content")
        if isinstance(content, list):
            messages += _turn(turn["role"], content)
            is_alike &= len(content) == 1 and _text_of(content[0]) not in (None, "")
        else:
            messages.append({"role": turn["role"], "content": content})
    chat: dict[str, object] = {"messages": messages}
    for name in ("chat_template_kwargs", "kv_transfer_params"):
        if body.get(name) is not None:
            chat[name], is_alike = body[name], False
    if body.get("tools") is not None:
        chat["tools"] = _tools(body["tools"])
    return ChatBody(chat, is_alike)


def chat_of_responses(body: Mapping[str, object]) -> ChatBody:
    """The chat of a body of OpenAI's Responses API; O(items).

    Raises:
        NoTokensError: it is none, rests on an earlier response, or engines differ on it from release to release.
    """
    if any(body.get(name) is not None for name in KEPT_BY_ENGINE):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_API, "it goes on from what an engine keeps")
    reasoning = body.get("reasoning")
    if body.get("tools") or (isinstance(reasoning, dict) and reasoning.get("effort") is not None):
        raise NoTokensError(NoTokensReason.UNSUPPORTED_API, "it has tools, or asks for an effort")
    if body.get("truncation") == "auto":
        _refuse("it may be truncated")
    messages: list[dict[str, object]] = []
    if isinstance(instructions := body.get("instructions"), str) and instructions:
        messages.append({"role": "system", "content": instructions})
    match body.get("input"):
        case str() as text:
            messages.append({"role": "user", "content": text})
        case [_, *_] as items:
            messages += map(_item, items)
        case _:
            raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "there is no input")
    variables = body.get("chat_template_kwargs")
    if variables is None:
        return ChatBody({"messages": messages}, is_alike=True)
    return ChatBody({"messages": messages, "chat_template_kwargs": variables}, is_alike=False)


def _refuse(detail: str) -> NoReturn:
    raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, detail)


def _text_of(block: object) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return None


def _system(system: object) -> tuple[list[dict[str, object]], bool]:
    """The system message in front, if there is one, and whether every engine puts this one there."""
    match system:
        case None | "" | []:
            return [], True
        case str():
            return [{"role": "system", "content": system}], bool(system.strip())
        case list():
            texts = [text for block in system if (text := _text_of(block))]
            said = "".join(text for text in texts if not text.startswith(_BILLING))
            is_alike = len(texts) == 1 and said == texts[0]
            return ([{"role": "system", "content": said}] if said else []), is_alike
        case _:
            _refuse("system is neither text nor a list")


def _turn(role: str, blocks: list[object]) -> list[dict[str, object]]:
    """One turn as messages: results of tools first, then what else it holds."""
    results: list[dict[str, object]] = []
    parts: list[object] = []
    calls: list[object] = []
    thoughts: list[str] = []
    for block in blocks:
        if not isinstance(block, dict):
            _refuse("a block of content is not an object")
        match block:
            case {"type": "text", "text": ""} | {"type": "redacted_thinking"}:
                pass
            case {"type": "thinking", "thinking": str(thought)}:
                thoughts.append(thought)
            case {"type": "tool_use"}:
                calls.append(_call(block))
            case {"type": "tool_result"} if role == "user":
                results.append(_result(block))
            case {"type": "tool_result" | "tool_addition" | "tool_removal"}:
                _refuse("an assistant tells the result of a tool, or tools change on the way")
            case _:
                parts.append(block)
    message: dict[str, object] = {"role": role}
    if parts:
        message["content"] = _text_of(parts[0]) if _is_one_text(parts) else parts
    elif role == "user":
        return results
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return [*results, message]


def _is_one_text(parts: list[object]) -> bool:
    return len(parts) == 1 and _text_of(parts[0]) is not None


def _call(block: Mapping[str, object]) -> dict[str, object]:
    arguments = block.get("input")
    if not block.get("id"):
        _refuse("a tool call has no id, and engines make one up")
    function = {
        "name": block.get("name") or "",
        "arguments": json.dumps(arguments if isinstance(arguments, dict) else {}),
    }
    return {"id": block["id"], "type": "function", "function": function}


def _result(block: Mapping[str, object]) -> dict[str, object]:
    match block.get("content"):
        case None:
            text = ""
        case str() as said:
            text = said
        case list() as items:
            texts = [_text_of(item) for item in items]
            if None in texts:
                _refuse("the result of a tool is not its text alone")
            text = "\n".join(text for text in texts if text is not None)
        case _:
            _refuse("the result of a tool is neither text nor a list")
    return {"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": text}


def _tools(tools: object) -> list[object]:
    if not isinstance(tools, list):
        _refuse("tools is not a list")
    return [_tool(tool) for tool in tools]


def _tool(tool: object) -> dict[str, object]:
    if not isinstance(tool, dict) or not isinstance(tool.get("input_schema"), dict):
        _refuse("a tool that the engine has of its own")
    function: dict[str, object] = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool["input_schema"],
    }
    for name in ("strict", "defer_loading"):
        if tool.get(name) is not None:
            function[name] = tool[name]
    return {"type": "function", "function": function}


def _item(item: object) -> dict[str, object]:
    """One turn of a response's input."""
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        raise NoTokensError(NoTokensReason.UNSUPPORTED_API, "its input holds more than messages")
    if item.get("status") in ("in_progress", "incomplete"):
        _refuse("a message is to be gone on with")
    return {"role": item.get("role"), "content": item.get("content")}
