"""Bodies of other APIs, as chats and as tokens."""

from typing import Any

import orjson
import pytest

from prompt import Api, NoTokensError, NoTokensReason, PromptModel, bundled_model_dir, view_request
from prompt.chat_body import chat_of_messages, chat_of_responses
from protocol import EngineKind

MODEL = PromptModel.load(bundled_model_dir())
BOTH = MODEL.for_engines({EngineKind.SGLANG, EngineKind.VLLM})
SYSTEM = {"role": "system", "content": "Be short."}
HI, SO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "So?"}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc"}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def said(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "42"}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("body", "messages", "is_alike"),
    [
        ({"messages": [HI]}, [HI], True),
        ({"system": "Be short.", "messages": [HI, SO, HI]}, [SYSTEM, HI, SO, HI], True),
        ({"system": "", "messages": [HI]}, [HI], True),
        ({"system": " ", "messages": [HI]}, [{**SYSTEM, "content": " "}, HI], False),
        ({"system": [text("Be short.")], "messages": [HI]}, [SYSTEM, HI], True),
        ({"system": [text("Be "), text("short.")], "messages": [HI]}, [SYSTEM, HI], False),
        ({"system": [BILLING, text("Be short.")], "messages": [HI]}, [SYSTEM, HI], False),
        ({"system": [BILLING], "messages": [HI]}, [HI], False),
        ({"messages": [said(text("hi"))]}, [HI], True),
        ({"messages": [said(text("a"), text("b"))]}, [said(text("a"), text("b"))], False),
        ({"messages": [HI, said(text(""), text("So?"), role="assistant")]}, [HI, SO], False),
        (
            {"messages": [HI, said(text("So?"), USE, role="assistant"), said(RESULT, text("hi"))]},
            [HI, {**SO, "tool_calls": CALLS}, {"role": "tool", "tool_call_id": "c1", "content": "42"}, HI],
            False,
        ),
        (
            {"messages": [HI, said(USE, role="assistant"), said({**RESULT, "content": [text("4"), text("2")]})]},
            [HI, {"role": "assistant", "tool_calls": CALLS}, {"role": "tool", "tool_call_id": "c1", "content": "4\n2"}],
            False,
        ),
        (
            {"messages": [said({"type": "thinking", "thinking": "hm", "signature": "s"}, text("So?"), role="assistant")]},
            [{**SO, "reasoning": "hm"}],
            False,
        ),
        ({"messages": [said({**RESULT, "content": None})]}, [{"role": "tool", "tool_call_id": "c1", "content": ""}], False),
        ({"messages": [said(text("see"), {"type": "image", "source": {}})]}, [said(text("see"), {"type": "image", "source": {}})], False),
    ],
)  # fmt: skip
def test_messages_become_a_chat(
    body: dict[str, Any], messages: list[dict[str, Any]], *, is_alike: bool
) -> None:
    found = chat_of_messages(body)
    assert found.body["messages"] == messages
    assert found.is_alike is is_alike


def test_tools_and_variables_of_messages() -> None:
    body = {"messages": [HI], "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}
    found = chat_of_messages(body)
    assert found.body["tools"] == [{"type": "function", "function": FUNCTION}]
    assert found.body["chat_template_kwargs"] == {"enable_thinking": False}
    assert not found.is_alike
    strict = {**TOOL, "strict": True, "defer_loading": False}
    function = {**FUNCTION, "strict": True, "defer_loading": False}
    found = chat_of_messages({"messages": [HI], "tools": [strict]})
    assert found.body["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    "thinking", [{"type": "enabled", "budget_tokens": 9}, {"type": "adaptive"}]
)
def test_thinking_within_a_budget_is_no_part_of_the_prompt(thinking: dict[str, Any]) -> None:
    found = chat_of_messages({"messages": [HI], "thinking": thinking})
    assert found.body == {"messages": [HI]}
    assert not found.is_alike


def test_variables_of_responses_reach_the_template() -> None:
    variables = {"enable_thinking": False}
    found = chat_of_responses({"input": "hi", "chat_template_kwargs": variables})
    assert found.body == {"messages": [HI], "chat_template_kwargs": variables}
    assert not found.is_alike
    assert chat_of_responses({"input": "hi"}).is_alike


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        ({"input": "hi"}, [HI]),
        ({"input": "hi", "instructions": "Be short."}, [SYSTEM, HI]),
        ({"input": "hi", "instructions": "", "tools": [], "reasoning": {"effort": None}}, [HI]),
        ({"input": [HI, SO, {"type": "message", **HI}]}, [HI, SO, HI]),
        ({"input": [said({"type": "input_text", "text": "hi"})]}, [said({"type": "input_text", "text": "hi"})]),
    ],
)  # fmt: skip
def test_responses_become_a_chat(body: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    assert chat_of_responses(body).body["messages"] == messages


def tokens(api: Api, model: PromptModel, body: dict[str, Any]) -> bytes | NoTokensReason:
    try:
        return model.prompt_tokens(view_request(api, orjson.dumps(body))).tokens
    except NoTokensError as error:
        return error.reason


CHAT = tokens(Api.CHAT, MODEL, {"messages": [SYSTEM, HI]})


@pytest.mark.parametrize(
    ("api", "body", "is_plain"),
    [
        (Api.MESSAGES, {"system": "Be short.", "messages": [HI], "max_tokens": 9}, True),
        (Api.MESSAGES, {"system": [text("Be "), text("short.")], "messages": [HI]}, False),
        (Api.RESPONSES, {"instructions": "Be short.", "input": "hi"}, True),
        (Api.RESPONSES, {"input": [SYSTEM, HI]}, True),
        (Api.RESPONSES, {"input": [SYSTEM, said({"type": "input_text", "text": "hi"})]}, False),
    ],
)
def test_they_have_the_tokens_of_that_chat(
    api: Api, body: dict[str, Any], *, is_plain: bool
) -> None:
    assert tokens(api, MODEL, body) == CHAT
    assert tokens(api, BOTH, body) == (CHAT if is_plain else NoTokensReason.UNSUPPORTED_CONTENT)


def test_before_an_image_they_have_those_before_it() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "…"}}
    body = {"messages": [said(text("look at this " * 9), image)]}
    found = MODEL.prompt_tokens(view_request(Api.MESSAGES, orjson.dumps(body)))
    assert found.is_cut
    assert len(found.tokens) > 30


@pytest.mark.parametrize(
    ("api", "body", "reason"),
    [
        (Api.MESSAGES, {"messages": "hi"}, NoTokensReason.NOT_A_PROMPT),
        (Api.MESSAGES, {"messages": []}, NoTokensReason.NOT_A_PROMPT),
        (Api.MESSAGES, {}, NoTokensReason.NOT_A_PROMPT),
        (Api.MESSAGES, {"messages": [SYSTEM, HI]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [7]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [{"role": "user", "content": ["hi"]}]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [HI], "system": 7}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [HI], "tools": 7}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [HI], "tools": [{"type": "web_search"}]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [HI], "output_config": {"effort": "high"}}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [HI], "thinking": {"type": "disabled"}}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [said({"type": "tool_removal", "tool": {"name": "f"}})]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [said({"type": "tool_addition", "tool": {"name": "f"}})]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [said({**USE, "id": None}, role="assistant")]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [said(RESULT, role="assistant")]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [said({**RESULT, "content": 7})]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.MESSAGES, {"messages": [said({**RESULT, "content": [{"type": "image"}]})]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.RESPONSES, {}, NoTokensReason.NOT_A_PROMPT),
        (Api.RESPONSES, {"input": []}, NoTokensReason.NOT_A_PROMPT),
        (Api.RESPONSES, {"input": 7}, NoTokensReason.NOT_A_PROMPT),
        (Api.RESPONSES, {"input": "hi", "previous_response_id": "r1"}, NoTokensReason.UNSUPPORTED_API),
        (Api.RESPONSES, {"input": "hi", "conversation": "c"}, NoTokensReason.UNSUPPORTED_API),
        (Api.RESPONSES, {"input": "hi", "prompt": {"id": "p"}}, NoTokensReason.UNSUPPORTED_API),
        (Api.RESPONSES, {"input": "hi", "tools": [{"type": "function"}]}, NoTokensReason.UNSUPPORTED_API),
        (Api.RESPONSES, {"input": "hi", "reasoning": {"effort": "low"}}, NoTokensReason.UNSUPPORTED_API),
        (Api.RESPONSES, {"input": "hi", "truncation": "auto"}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.RESPONSES, {"input": [{"type": "function_call_output"}]}, NoTokensReason.UNSUPPORTED_API),
        (Api.RESPONSES, {"input": [{**SO, "status": "incomplete"}]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.RESPONSES, {"input": [{"content": "hi"}]}, NoTokensReason.NOT_A_PROMPT),
    ],
)  # fmt: skip
def test_why_there_are_no_tokens(api: Api, body: dict[str, Any], reason: NoTokensReason) -> None:
    assert tokens(api, MODEL, body) is reason
