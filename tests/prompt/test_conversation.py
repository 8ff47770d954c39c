import copy
from typing import Any

import pytest

from prompt.content_format import ContentFormat
from prompt.conversation import Conversation, is_plain, read_conversation
from prompt.errors import NoTokensError, NoTokensReason

HI = {"role": "user", "content": "hi"}


def read(
    *messages: dict[str, Any],
    wanted: ContentFormat = ContentFormat.STRING,
    knows_developer: bool = False,
    **fields: Any,
) -> Conversation:
    return read_conversation(
        {"messages": list(messages), **fields}, wanted, knows_developer=knows_developer
    )


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("content", "as_string", "as_parts"),
    [
        ("a", "a", [text("a")]),
        ("", "", [text("")]),
        (None, "", []),
        ([], "", []),
        ([text("a")], "a", [text("a")]),
        ([text("a"), text("b")], "a\nb", [text("a"), text("b")]),
        ([text("a"), text(""), text("b")], "a\nb", [text("a"), text(""), text("b")]),
        (["a", text("b")], "a\nb", [text("a"), text("b")]),
        ([{"type": "input_text", "text": "a"}], "a", [text("a")]),
        ([{"type": "refusal", "refusal": "no"}], "no", [text("no")]),
        ([{"type": "text", "text": None}, text("b")], "b", [text("b")]),
    ],
)
def test_content_takes_the_form_that_the_template_wants(
    content: object, as_string: str, as_parts: list[object]
) -> None:
    message = {"role": "user", "content": content}
    assert read(message).messages[0]["content"] == as_string
    assert read(message, wanted=ContentFormat.PARTS).messages[0]["content"] == as_parts


def test_tool_results_are_always_one_string() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": [text("a"), text("b")]}
    assert read(result, wanted=ContentFormat.PARTS).messages == [
        {"role": "tool", "tool_call_id": "c", "content": "a\nb"}
    ]


def test_only_known_fields_of_a_message_reach_the_template() -> None:
    message = {**HI, "name": "bob", "tool_calls": [1], "reasoning": "r", "cache_control": {}}
    assert read(message).messages == [{**HI, "name": "bob"}]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_reaches_the_template_under_both_names(field: str) -> None:
    (message,) = read({"role": "assistant", "content": "a", field: "why"}).messages
    assert message["reasoning"] == message["reasoning_content"] == "why"


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": 1.0, "b": [1e30, null]}', {"a": 1.0, "b": [1e30, None]}),
        ({"a": 1}, {"a": 1}),
        ("{bad", {}),
        ("[1]", {}),
        ("", {}),
        (None, {}),
        ([1], {}),
        ("[" * 100_000, {}),
    ],
)
def test_arguments_of_tool_calls_become_objects(arguments: object, parsed: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (message,) = read({"role": "assistant", "content": None, "tool_calls": [call]}).messages
    assert message["tool_calls"] == [{**call, "function": {"name": "f", "arguments": parsed}}]


@pytest.mark.parametrize("calls", [[], None])
def test_no_tool_calls_are_dropped(calls: object) -> None:
    (message,) = read({"role": "assistant", "content": "a", "tool_calls": calls}).messages
    assert message == {"role": "assistant", "content": "a"}


SYSTEM = {"role": "system", "content": "s"}
DEVELOPER = {"role": "developer", "content": "d", "tools": [1]}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([DEVELOPER, HI], [{"role": "system", "content": "d"}, HI]),
        ([SYSTEM, DEVELOPER, HI], [{"role": "system", "content": "s\n\nd"}, HI]),
        ([HI, DEVELOPER], [{"role": "system", "content": "d"}, HI]),
        (
            [SYSTEM, HI, DEVELOPER, HI, SYSTEM],
            [{"role": "system", "content": "s\n\nd\n\ns"}, HI, HI],
        ),
        ([SYSTEM, {"role": "developer", "content": ""}, HI], [SYSTEM, HI]),
        ([SYSTEM, HI, SYSTEM], [SYSTEM, HI, SYSTEM]),
    ],
)
def test_developer_becomes_system_where_the_template_does_not_know_it(
    messages: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    assert read(*messages).messages == expected


def test_merged_system_messages_are_a_string_whatever_the_template_wants() -> None:
    messages = read(SYSTEM, DEVELOPER, HI, wanted=ContentFormat.PARTS).messages
    assert messages[0] == {"role": "system", "content": "s\n\nd"}


def test_developer_stays_where_the_template_knows_it() -> None:
    assert read(DEVELOPER, HI, knows_developer=True).messages == [DEVELOPER, HI]


@pytest.mark.parametrize(
    ("tool", "rebuilt"),
    [
        (
            {"function": {"extra": 5, "parameters": {"z": 1, "a": 2}, "description": "d", "name": "f"}, "type": "function"},
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}},
        ),
        (
            {"function": {"name": "f"}, "unknown": 1},
            {"type": "function", "function": {"name": "f", "description": None, "parameters": None}},
        ),
        (
            {"type": "function", "function": {"defer_loading": True, "strict": False, "name": "f"}},
            {"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": False, "defer_loading": True}},
        ),
    ],
)  # fmt: skip
def test_tools_are_rebuilt_in_order(tool: dict[str, Any], rebuilt: dict[str, Any]) -> None:
    for choice in ("auto", "none", None):
        (seen,) = read(HI, tools=[tool], tool_choice=choice).tools or []
        assert seen == rebuilt
        assert list(seen) == list(rebuilt)
        assert list(seen["function"]) == list(rebuilt["function"])  # type: ignore[call-overload]


def test_variables_come_from_kwargs_and_the_body() -> None:
    fields: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "low"},
        "documents": [{"title": "t"}],
        "reasoning_effort": "high",
    }
    assert read(HI, **fields).variables == {
        "enable_thinking": False,
        "reasoning_effort": "high",
        "documents": [{"title": "t"}],
    }
    assert read(HI, reasoning_effort="auto", documents=None).variables == {}


@pytest.mark.parametrize(
    ("effort", "kwargs", "thinks"),
    [
        ("high", None, True),
        ("none", None, False),
        ("none", {"other": 1}, False),
        ("none", {"enable_thinking": True}, True),
        ("high", {"enable_thinking": None}, None),
    ],
)
def test_an_effort_says_whether_to_think_where_the_request_does_not(
    effort: str, kwargs: dict[str, Any] | None, thinks: bool | None
) -> None:
    variables = read(HI, reasoning_effort=effort, chat_template_kwargs=kwargs).variables
    assert variables["enable_thinking"] is thinks
    assert variables["reasoning_effort"] == effort


@pytest.mark.parametrize(
    ("fields", "has_generation_prompt", "is_continued"),
    [
        ({}, True, False),
        ({"add_generation_prompt": False}, False, False),
        ({"add_generation_prompt": False, "continue_final_message": True}, False, True),
        ({"continue_final_message": True}, False, True),
        ({"continue_final_message": "content"}, True, False),
    ],
)
def test_how_the_chat_ends(
    fields: dict[str, Any], has_generation_prompt: bool, is_continued: bool
) -> None:
    seen = read(HI, **fields)
    assert (seen.has_generation_prompt, seen.is_continued) == (has_generation_prompt, is_continued)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "input_audio", "input_audio": {}},
        {"type": "text", "text": "a", "uuid": "u"},
        {"type": "unheard_of"},
        {"image_url": "x"},
        {"type": ["text"]},
    ],
)
def test_a_part_that_is_not_text_leaves_the_chat_without_tokens(part: dict[str, Any]) -> None:
    with pytest.raises(NoTokensError) as caught:
        read({"role": "user", "content": [text("look"), part]})
    assert caught.value.reason is NoTokensReason.UNSUPPORTED_CONTENT


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": []},
        {"messages": "hi"},
        {"messages": ["hi"]},
        {"messages": [{}]},
        {"messages": [{"role": 1, "content": "a"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": {"type": "text"}}]},
        {"messages": [{"role": "user", "content": [5]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        {"messages": [{"role": "user", "content": [{"type": "thinking"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [5]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": "f"}]}]},
        {"messages": [HI], "tools": {}},
        {"messages": [HI], "tools": [5]},
        {"messages": [HI], "tools": [{"function": {}}]},
        {"messages": [HI], "tools": [{"type": "function"}]},
        {"messages": [HI], "chat_template_kwargs": []},
        {"messages": [HI], "chat_template_kwargs": {"tokenize": True}},
    ],
)
def test_what_is_no_chat_has_no_tokens(body: dict[str, Any]) -> None:
    with pytest.raises(NoTokensError) as caught:
        read_conversation(body, ContentFormat.STRING, knows_developer=False)
    assert caught.value.reason is NoTokensReason.NOT_A_PROMPT


def test_a_template_in_the_request_is_not_run() -> None:
    with pytest.raises(NoTokensError) as caught:
        read(HI, chat_template="{{ messages }}")
    assert caught.value.reason is NoTokensReason.OWN_TEMPLATE


def test_the_body_stays_as_it_was() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "messages": [
            SYSTEM,
            DEVELOPER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ],
        "tools": [{"function": {"name": "f", "strict": True, "x": 1}}],
        "chat_template_kwargs": {"a": 1},
        "documents": [{}],
    }
    before = copy.deepcopy(body)
    read_conversation(body, ContentFormat.PARTS, knows_developer=False)
    assert body == before


def test_texts_are_measured() -> None:
    assert read(SYSTEM, HI).num_chars == 3
    assert read(SYSTEM, HI, wanted=ContentFormat.PARTS).num_chars == 3


TURNS = [{"role": "system", "content": "s"}, HI, {"role": "assistant", "content": None}, HI]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": TURNS}, True),
        ({"messages": TURNS, "tools": None, "add_generation_prompt": True}, True),
        ({"messages": TURNS, "chat_template_kwargs": {"enable_thinking": False}}, True),
        ({"messages": [{**HI, "tool_calls": []}]}, True),
        ({"messages": [{**HI, "name": None, "weight": 1}]}, True),
        ({"messages": [{**HI, "name": "bob"}]}, False),
        ({"messages": [{"role": "assistant", "content": "a", "name": "bob"}, HI]}, True),
        ({"messages": [{"role": "assistant", "content": "a", "tool_calls": []}, HI]}, False),
        (
            {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "r"}, HI]},
            False,
        ),
        ({"messages": [{"role": "assistant", "content": "a", "reasoning": "r"}, HI]}, False),
        ({"messages": [{"role": "system", "content": "a", "tool_call_id": "c"}, HI]}, False),
        ({"messages": [{"role": "assistant", "tool_calls": []}, HI]}, False),
        ({"messages": [{"role": "assistant"}, HI]}, True),
        ({"messages": []}, True),
        ({"messages": TURNS, "reasoning_effort": None, "input_ids": None}, True),
        ({"messages": TURNS, "reasoning_effort": "low"}, False),
        ({"messages": TURNS, "reasoning": {"enabled": True}}, False),
        ({"messages": TURNS, "input_ids": [1, 2]}, False),
        ({"messages": [HI, {"role": "assistant", "content": "so"}]}, False),
        ({"messages": [HI, {"role": "assistant", "content": "so", "prefix": True}]}, False),
        ({"messages": TURNS, "tools": []}, False),
        ({"messages": TURNS, "documents": []}, False),
        ({"messages": TURNS, "add_generation_prompt": False}, False),
        ({"messages": TURNS, "continue_final_message": True}, False),
        ({"messages": TURNS, "add_special_tokens": True}, False),
        ({"messages": TURNS, "kv_transfer_params": {"prompt_token_ids": [1]}}, False),
        ({"messages": [{"role": "user", "content": [text("a")]}]}, True),
        ({"messages": [{"role": "user", "content": [text("a"), text("b")]}]}, False),
        ({"messages": [{"role": "user", "content": [{**text("a"), "uuid": "u"}]}]}, False),
        ({"messages": [{"role": "user", "content": ["a"]}]}, False),
        ({"messages": [{"role": "developer", "content": "a"}]}, False),
        ({"messages": [{"role": "tool", "content": "a"}]}, False),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, False),
        ({"messages": ["a"]}, False),
        ({"messages": "a"}, False),
        ({}, False),
    ],
)
def test_which_chats_every_engine_renders_alike(body: dict[str, object], *, expected: bool) -> None:
    assert is_plain(body) is expected


@pytest.mark.parametrize(
    "message",
    [
        {"content": "a", "role": "user"},
        {"role": "user", "content": "a", "weight": 1},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ],
)
def test_a_template_sees_the_role_first_and_the_content_next(message: dict[str, object]) -> None:
    body = {"messages": [message]}
    conversation = read_conversation(body, ContentFormat.STRING, knows_developer=True)
    assert list(conversation.messages[0].items()) == [("role", "user"), ("content", "a")]
    assert conversation.num_chars == 1


@pytest.mark.parametrize("role", [[], {}, 1, None])
def test_a_role_that_is_no_text_is_not_plain(role: object) -> None:
    assert not is_plain({"messages": [{"role": role, "content": "a"}]})
