"""What SGLang hands to templates: the forms that its own classes make of bodies, written down as a table."""

import copy
from typing import Any

import orjson
import pytest

from prompt import Api, NoTokensError, NoTokensReason, PromptModel, bundled_model_dir, view_request
from prompt.content_format import ContentFormat
from prompt.sglang_chat import read_sglang_conversation
from protocol import EngineKind

STRING, PARTS = ContentFormat.STRING, ContentFormat.PARTS
HI = {"role": "user", "content": "hi"}
ONE, TWO = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
READ = {
    "id": "c1",
    "index": None,
    "type": "function",
    "function": {"name": "f", "arguments": {"a": 1}},
}


def said(role: str, content: object = "so", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


@pytest.mark.parametrize(
    ("message", "wanted", "expected"),
    [
        (said("user", name="bob", tool_calls=[CALL]), STRING, said("user")),
        (said("user", [ONE, TWO]), STRING, said("user", "a b")),
        (said("user", [ONE, {**TWO, "more": 1}]), PARTS, said("user", [ONE, TWO])),
        (said("user", "a"), PARTS, said("user", "a")),
        (said("user", []), STRING, said("user", "")),
        (said("System", None), PARTS, said("system", "")),
        (said("developer", name="bob"), STRING, said("developer", name="bob")),
        (said("tool", [ONE, TWO], tool_call_id="c1"), STRING, said("tool", "a b", tool_call_id="c1")),
        (said("tool", [ONE, TWO], tool_call_id="c1"), PARTS, {"role": "tool", "tool_call_id": "c1", "content": "a b"}),
        (said("assistant", tool_calls=[]), STRING, said("assistant", tool_calls=[])),
        (said("assistant", None, tool_calls=[CALL]), STRING, said("assistant", "", tool_calls=[READ])),
        (said("assistant", [ONE], name="x"), PARTS, {"role": "assistant", "name": "x", "content": [ONE]}),
        (said("assistant", reasoning_content="hm", reasoning="no"), STRING, said("assistant", reasoning_content="hm")),
        (said("assistant", name=None, weight=1), STRING, said("assistant")),
    ],
)  # fmt: skip
def test_messages(message: dict[str, Any], wanted: ContentFormat, expected: dict[str, Any]) -> None:
    body = {"messages": [message, HI]}
    before = copy.deepcopy(body)
    (first, last) = read_sglang_conversation(body, wanted).messages
    assert list(first.items()) == list(expected.items())  # templates may show the order
    assert last == HI
    assert body == before


def test_the_assistants_last_word_is_the_users() -> None:
    for content, wanted, expected in (
        ("so", STRING, "so"),
        ([ONE, TWO], STRING, "a b"),
        (None, STRING, ""),
    ):
        body = {"messages": [HI, said("assistant", content, name="bob", tool_calls=[CALL])]}
        assert read_sglang_conversation(body, wanted).messages[-1] == said("user", expected)
    parts = {"messages": [HI, said("assistant", [ONE])]}
    assert read_sglang_conversation(parts, PARTS).messages[-1] == said("assistant", [ONE])


FUNCTION = {"parameters": {}, "name": "f", "other": 1, "strict": True}
TOLD = {"parameters": {}, "name": "f", "strict": True, "description": None}
TOOL = {"type": "function", "function": FUNCTION}
OTHER = {"function": {"name": "g", "description": "d"}, "defer_loading": True}
TOLD_OTHER = {"name": "g", "description": "d", "parameters": None, "defer_loading": True}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"tools": []}, None),
        ({"tools": [TOOL], "tool_choice": "none"}, None),
        ({"tools": [TOOL]}, [{"type": "function", "function": TOLD, "defer_loading": None}]),
        ({"tools": [TOOL], "tool_choice": "required"}, [{"type": "function", "function": TOLD, "defer_loading": None}]),
        ({"tools": [TOOL, OTHER], "tool_choice": {"function": {"name": "g"}}}, [{"type": "function", "function": TOLD_OTHER, "defer_loading": True}]),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "h"}}}, None),
    ],
)  # fmt: skip
def test_tools(fields: dict[str, Any], expected: object) -> None:
    found = read_sglang_conversation({"messages": [HI], **fields}, STRING).tools
    assert orjson.dumps(found) == orjson.dumps(expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low", "thinking": True, "enable_thinking": True}),
        ({"reasoning_effort": "none", "chat_template_kwargs": {"thinking": True, "a": 1}}, {"reasoning_effort": "none", "thinking": True, "enable_thinking": False, "a": 1}),
        ({"documents": [{}], "add_generation_prompt": False}, {}),
    ],
)  # fmt: skip
def test_variables(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read_sglang_conversation({"messages": [HI], **fields}, STRING)
    assert found.variables == expected
    assert (found.has_generation_prompt, found.is_continued) == (True, False)


UNSUPPORTED, NOT_A_PROMPT = NoTokensReason.UNSUPPORTED_CONTENT, NoTokensReason.NOT_A_PROMPT


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"messages": [HI], "chat_template": "x"}, NoTokensReason.OWN_TEMPLATE),
        ({"messages": [HI], "input_ids": [1]}, UNSUPPORTED),
        ({"messages": [HI], "reasoning": {}}, UNSUPPORTED),
        ({"messages": [HI, said("assistant")], "continue_final_message": True}, UNSUPPORTED),
        ({"messages": [HI, said("assistant", prefix=True)]}, UNSUPPORTED),
        ({"messages": [said("developer", tools=[TOOL]), HI]}, UNSUPPORTED),
        ({"messages": [said("user", [{"type": "image_url"}])]}, UNSUPPORTED),
        ({}, NOT_A_PROMPT),
        ({"messages": []}, NOT_A_PROMPT),
        ({"messages": [7]}, NOT_A_PROMPT),
        ({"messages": [said("user", None)]}, NOT_A_PROMPT),
        ({"messages": [said("user", ["a"])]}, NOT_A_PROMPT),
        ({"messages": [said("user", 7)]}, NOT_A_PROMPT),
        ({"messages": [said("bishop")]}, NOT_A_PROMPT),
        ({"messages": [said("assistant", tool_calls=7)]}, NOT_A_PROMPT),
        ({"messages": [said("assistant", tool_calls=[{}])]}, NOT_A_PROMPT),
        ({"messages": [said("assistant", tool_calls=[{"function": {"arguments": "{"}}])]}, NOT_A_PROMPT),
        ({"messages": [said("assistant", tool_calls=[{"function": {"arguments": "[]"}}])]}, NOT_A_PROMPT),
        ({"messages": [HI], "tools": {"a": 1}}, NOT_A_PROMPT),
        ({"messages": [HI], "tools": [{"function": {}}]}, NOT_A_PROMPT),
        ({"messages": [HI], "chat_template_kwargs": [1]}, NOT_A_PROMPT),
    ],
)  # fmt: skip
def test_what_has_no_tokens(body: dict[str, Any], reason: NoTokensReason) -> None:
    with pytest.raises(NoTokensError) as caught:
        read_sglang_conversation(body, STRING)
    assert caught.value.reason is reason


MODEL = PromptModel.load(bundled_model_dir())
PLAIN = MODEL.for_engines({EngineKind.SGLANG})
FOLLOWS = MODEL.for_engines({EngineKind.SGLANG}, follows_sglang=True)


def text_of(model: PromptModel, body: dict[str, Any], api: Api = Api.CHAT) -> str | NoTokensReason:
    view = view_request(api, orjson.dumps(body))
    try:
        tokens = model.prompt_tokens(view).tokens
    except NoTokensError as error:
        return error.reason
    return model.decode(
        [int.from_bytes(tokens[i : i + 4], "little") for i in range(0, len(tokens), 4)]
    )


def test_further_chats_have_tokens_where_the_engine_has_shown_that_they_are_these() -> None:
    chat = {
        "messages": [HI, said("assistant")],
        "add_special_tokens": True,
        "kv_transfer_params": {"prompt_token_ids": [1]},
    }
    assert text_of(PLAIN, chat) is UNSUPPORTED
    assert text_of(FOLLOWS, chat) == (
        "<|begin|><|turn|>user\nhi<|end_turn|>\n<|turn|>user\nso<|end_turn|>\n<|turn|>assistant\n"
    )
    assert text_of(FOLLOWS, {"messages": [HI]}) == text_of(MODEL, {"messages": [HI]})
    parts = {"messages": [said("user", [ONE, TWO])]}
    assert "a b<|end_turn|>" in str(text_of(FOLLOWS, parts))
    assert "a\nb<|end_turn|>" in str(text_of(MODEL, parts))
    tools = text_of(FOLLOWS, {"messages": [HI], "tools": [TOOL]})
    assert '{"type": "function", "function": {"parameters": {}, "name": "f"' in str(tools)


def test_other_apis_are_followed_in_plain_chats_alone() -> None:
    assert text_of(FOLLOWS, {"input": [HI, said("assistant")]}, Api.RESPONSES) is UNSUPPORTED
    assert text_of(FOLLOWS, {"input": [HI]}, Api.RESPONSES) == text_of(MODEL, {"messages": [HI]})
    image = [{"type": "text", "text": "look at it " * 9}, {"type": "image_url", "image_url": {}}]
    view = view_request(Api.CHAT, orjson.dumps({"messages": [said("user", image)]}))
    assert FOLLOWS.prompt_tokens(view).is_cut
