import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt import BUNDLED_MODEL_NAME, PromptModel, bundled_model_dir
from scripts import train_tokenizer

MODEL = PromptModel.load(bundled_model_dir(), name=BUNDLED_MODEL_NAME)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def test_the_files_are_what_the_script_makes() -> None:
    for name, text in train_tokenizer.model_files().items():
        assert (bundled_model_dir() / name).read_text(encoding="utf-8") == text


def test_every_byte_has_a_token_of_its_own() -> None:
    document = json.loads((bundled_model_dir() / "tokenizer.json").read_text())
    vocab = document["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(4096))
    assert len([token for token in vocab if len(token) == 1]) == 256


@given(st.text())
def test_any_text_survives_the_round_trip(text: str) -> None:
    ids = MODEL.encode(text, add_special_tokens=False)
    assert MODEL.decode(ids) == text


@given(st.lists(st.integers(0, 4095), max_size=50))
def test_any_ids_have_a_text(token_ids: list[int]) -> None:
    MODEL.decode(token_ids)


def test_common_words_are_single_tokens() -> None:
    for word in (" the", " request", " cache", " worker", " prefix"):
        assert len(MODEL.encode(word, add_special_tokens=False)) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]},
            "<|begin|><|turn|>system\nS<|end_turn|>\n<|turn|>user\nU<|end_turn|>\n<|turn|>assistant\n",
        ),
        (
            {
                "messages": [{"role": "user", "content": "U"}],
                "tools": TOOLS,
                "add_generation_prompt": False,
            },
            (
                '<|begin|><|turn|>tools\nAnswer with <|call|>{"name": ..., "arguments": {...}}<|end_call|> to call one of:\n'
                '{"type": "function", "function": {"name": "weather", "description": null, "parameters": {"type": "object"}}}'
                "<|end_turn|>\n<|turn|>user\nU<|end_turn|>\n"
            ),
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
                        ],
                    },
                    {"role": "tool", "tool_call_id": "c", "content": "21"},
                ]
            },
            (
                '<|begin|><|turn|>assistant\n<|call|>{"name": "f", "arguments": {"x": 1}}<|end_call|><|end_turn|>\n'
                "<|turn|>tool\n21<|end_turn|>\n<|turn|>assistant\n"
            ),
        ),
    ],
)
def test_chats_render(body: dict[str, Any], expected: str) -> None:
    assert MODEL.render_chat(body) == expected


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_a_growing_conversation_keeps_its_prefix(turns: list[str]) -> None:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    shorter = MODEL.render_chat(
        {"messages": messages[:-1] or messages, "add_generation_prompt": False}
    )
    assert MODEL.render_chat({"messages": messages}).startswith(shorter)
