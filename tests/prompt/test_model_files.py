import json
from pathlib import Path

import pytest

from prompt.errors import PromptModelError
from prompt.model_files import read_model_files


def write(directory: Path, **files: object) -> Path:
    """Files by their name with the dot as two underscores; objects are written as JSON."""
    (directory / "tokenizer.json").touch()
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def test_special_tokens_are_texts_or_objects(tmp_path: Path) -> None:
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "unk_token": None,
        "pad_token": 5,
        "additional_special_tokens": ["<a>", {"content": "<b>"}, 5],
        "model_max_length": 8192,
    }
    files = read_model_files(write(tmp_path, tokenizer_config__json=config))
    assert files.special_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "additional_special_tokens": ["<a>", "<b>"],
    }
    assert files.templates == {}
    assert files.tokenizer == tmp_path / "tokenizer.json"


def test_the_map_fills_in_what_the_configuration_does_not_mention(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        tokenizer_config__json={"bos_token": None, "eos_token": "</s>"},
        special_tokens_map__json={"bos_token": "<s>", "eos_token": "<e>", "pad_token": "<p>"},
    )
    assert read_model_files(directory).special_tokens == {"eos_token": "</s>", "pad_token": "<p>"}


@pytest.mark.parametrize(
    ("files", "templates"),
    [
        ({}, {}),
        ({"tokenizer_config__json": {"chat_template": "a"}}, {"default": "a"}),
        ({"tokenizer_config__json": {"chat_template": "a"}, "chat_template__jinja": "b"}, {"default": "b"}),
        ({"tokenizer_config__json": {"chat_template": "a"}, "chat_template__json": {"chat_template": "c"}}, {"default": "a"}),
        ({"chat_template__json": {"chat_template": "c"}}, {"default": "c"}),
        (
            {"tokenizer_config__json": {"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "t"}, 5, {}]}},
            {"default": "a", "tool_use": "t"},
        ),
        ({"tokenizer_config__json": {"chat_template": 5}}, {}),
    ],
)  # fmt: skip
def test_where_templates_come_from(
    files: dict[str, object], templates: dict[str, str], tmp_path: Path
) -> None:
    assert read_model_files(write(tmp_path, **files)).templates == templates


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("tokenizer_config__json", "{", "not readable"),
        ("tokenizer_config__json", "[]", "not a JSON object"),
        ("special_tokens_map__json", "nonsense", "not readable"),
        ("chat_template__json", "3", "not a JSON object"),
    ],
)
def test_a_broken_file_is_named(name: str, content: str, fault: str, tmp_path: Path) -> None:
    directory = write(tmp_path, **{name: content})
    with pytest.raises(PromptModelError, match=f"{name.replace('__', '.')}: {fault}"):
        read_model_files(directory)


def test_a_template_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    directory = write(tmp_path)
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(PromptModelError, match=r"chat_template\.jinja: not readable"):
        read_model_files(directory)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptModelError, match=r"tokenizer\.json: there is no such file"):
        read_model_files(tmp_path)
