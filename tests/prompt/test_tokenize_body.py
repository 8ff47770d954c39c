"""What an engine is asked, and that it is all that its tokens depend on."""

from typing import Any

import orjson
import pytest

from prompt import (
    Api,
    AskedKind,
    NoTokensError,
    NoTokensReason,
    PromptModel,
    bundled_model_dir,
    tokenize_body,
    view_request,
)

MODEL = PromptModel.load(bundled_model_dir())
HI, SO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "So?"}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def asked(api: Api, body: dict[str, Any], kind: AskedKind = AskedKind.VLLM) -> dict[str, Any]:
    view = view_request(api, orjson.dumps({"model": "m", **body}))
    found: dict[str, Any] = orjson.loads(tokenize_body(view, kind))
    return found


@pytest.mark.parametrize(
    ("api", "body", "expected"),
    [
        (Api.COMPLETIONS, {"prompt": "hi", "max_tokens": 3}, {"prompt": "hi", "add_special_tokens": True}),
        (Api.COMPLETIONS, {"prompt": ["hi"], "add_special_tokens": False}, {"prompt": "hi", "add_special_tokens": False}),
        (Api.GENERATE, {"text": "hi"}, {"prompt": "hi", "add_special_tokens": True}),
        (Api.CHAT, {"messages": [HI], "stream": True}, {"messages": [HI]}),
        (Api.CHAT, {"messages": [HI, SO], "tools": TOOLS, "continue_final_message": True, "add_generation_prompt": False},
         {"messages": [HI, SO], "tools": TOOLS, "continue_final_message": True, "add_generation_prompt": False}),
        (Api.CHAT, {"messages": [HI], "chat_template_kwargs": {"a": 1}, "add_special_tokens": True, "reasoning_effort": "auto"},
         {"messages": [HI], "chat_template_kwargs": {"a": 1}, "add_special_tokens": True}),
        (Api.MESSAGES, {"system": "S", "messages": [HI], "max_tokens": 3}, {"messages": [{"role": "system", "content": "S"}, HI]}),
        (Api.RESPONSES, {"input": "hi"}, {"messages": [HI]}),
    ],
)  # fmt: skip
def test_what_is_asked_has_the_tokens_of_the_request(
    api: Api, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = asked(api, body)
    assert found == {"model": "m", **expected}
    form = Api.CHAT if "messages" in found else Api.COMPLETIONS
    tokens = [
        MODEL.prompt_tokens(view_request(kind, orjson.dumps(fields))).tokens
        for kind, fields in ((api, body), (form, found))
    ]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    ("api", "body", "reason"),
    [
        (Api.COMPLETIONS, {"prompt": [1, 2]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": ["a", "b"]}, NoTokensReason.BATCHED_PROMPT),
        (Api.COMPLETIONS, {"prompt": "a", "truncate_prompt_tokens": 3}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.CHAT, {"messages": []}, NoTokensReason.NOT_A_PROMPT),
        (Api.CHAT, {"messages": [HI], "chat_template": "x"}, NoTokensReason.OWN_TEMPLATE),
        (Api.CHAT, {"messages": [HI], "documents": [{}]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.CHAT, {"messages": [HI], "reasoning_effort": "high"}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.RESPONSES, {"input": "hi", "previous_response_id": "r"}, NoTokensReason.UNSUPPORTED_API),
    ],
)  # fmt: skip
def test_what_is_not_asked(api: Api, body: dict[str, Any], reason: NoTokensReason) -> None:
    with pytest.raises(NoTokensError) as caught:
        asked(api, body)
    assert caught.value.reason is reason


def test_where_engines_differ_plain_chats_alone_are_asked() -> None:
    assert asked(Api.CHAT, {"messages": [HI]}, AskedKind.BOTH)
    for api, body in (
        (Api.CHAT, {"messages": [HI], "tools": TOOLS}),
        (Api.MESSAGES, {"messages": [HI], "thinking": {"type": "enabled"}}),
    ):
        with pytest.raises(NoTokensError) as caught:
            asked(api, body, AskedKind.BOTH)
        assert caught.value.reason is NoTokensReason.UNSUPPORTED_CONTENT


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [HI], "tools": TOOLS, "tool_choice": "none"}, ["messages", "tools", "tool_choice"]),
        ({"messages": [HI], "reasoning_effort": "high"}, ["messages", "reasoning_effort"]),
        ({"messages": [HI], "reasoning": {"enabled": True}}, ["messages", "reasoning"]),
        ({"messages": [HI, SO], "continue_final_message": True}, ["messages", "continue_final_message"]),
        ({"messages": [HI, SO]}, ["messages"]),
        ({"messages": [HI], "add_generation_prompt": False, "add_special_tokens": True}, ["messages"]),
        ({"messages": [HI], "documents": [{}]}, ["messages"]),  # neither are chats rendered with
    ],
)  # fmt: skip
def test_an_sglang_is_asked_with_what_it_renders_chats_with(
    body: dict[str, Any], expected: list[str]
) -> None:
    found = asked(Api.CHAT, body, AskedKind.SGLANG)
    assert found == {"model": "m", **{name: body[name] for name in expected}}


def test_what_an_sglang_is_not_asked() -> None:
    for api, body in (
        (Api.CHAT, {"messages": [HI], "input_ids": [1]}),
        (Api.MESSAGES, {"messages": [HI], "tools": []}),
    ):
        with pytest.raises(NoTokensError) as caught:
            asked(api, body, AskedKind.SGLANG)
        assert caught.value.reason is NoTokensReason.UNSUPPORTED_CONTENT
