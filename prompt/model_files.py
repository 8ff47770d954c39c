"""What a model directory says about prompts: where the tokenizer is, the special tokens, the chat templates.

tokenizer.json              required
tokenizer_config.json       special tokens, chat template (a text, or a list of named ones)
special_tokens_map.json     special tokens that the configuration does not mention
chat_template.jinja         goes before the configuration's template
chat_template.json          where there is no other template
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from prompt.errors import PromptModelError
from prompt.file_stamp import Stamp, stamp_of

DEFAULT_TEMPLATE = "default"
TOOL_TEMPLATE = "tool_use"
_SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
)
_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What was read.

    Attributes:
        special_tokens: names that templates use, such as ``bos_token``, with their texts.
        templates: sources by name, ``default`` and perhaps ``tool_use``; empty where there is none.
    """

    tokenizer: Path
    special_tokens: Mapping[str, object]
    templates: Mapping[str, str]

    def written(self) -> list[str]:
        """Texts with all that the templates may write by themselves."""
        special = [text for text in self.special_tokens.values() if isinstance(text, str)]
        return [*self.templates.values(), *special] if self.templates else []


def read_model_files(directory: Path) -> ModelFiles:
    """Read the small files of a model directory.

    Raises:
        PromptModelError: tokenizer.json is missing, or a file cannot be read as what it is.
    """
    tokenizer = directory / "tokenizer.json"
    if not tokenizer.is_file():
        raise PromptModelError(f"{tokenizer}: there is no such file")
    config = _read_object(directory / "tokenizer_config.json")
    further = _read_object(directory / "special_tokens_map.json")
    return ModelFiles(
        tokenizer, _special_tokens({**further, **config}), _templates(directory, config)
    )


def stamp_of_model(directory: Path) -> Stamp:
    """What changes when one of the files does."""
    return stamp_of(directory / name for name in _FILES)


def _read_object(path: Path) -> dict[str, object]:
    """The object in a JSON file; empty where there is no file."""
    if not path.exists():
        return {}
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise PromptModelError(f"{path}: not readable: {error}") from error
    if not isinstance(document, dict):
        raise PromptModelError(f"{path}: not a JSON object")
    return document


def _special_tokens(config: Mapping[str, object]) -> dict[str, object]:
    tokens: dict[str, object] = {}
    for name in _SPECIAL_TOKENS:
        value = config.get(name)
        if isinstance(value, list):
            tokens[name] = [text for item in value if (text := _token_text(item)) is not None]
        elif (text := _token_text(value)) is not None:
            tokens[name] = text
    return tokens


def _token_text(value: object) -> str | None:
    """The text of a token, written as such or as an object with flags."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _templates(directory: Path, config: Mapping[str, object]) -> dict[str, str]:
    path = directory / "chat_template.jinja"
    if path.exists():
        try:
            return {DEFAULT_TEMPLATE: path.read_text(encoding="utf-8")}
        except (OSError, UnicodeDecodeError) as error:
            raise PromptModelError(f"{path}: not readable: {error}") from error
    named = config.get("chat_template")
    if named is None:
        named = _read_object(directory / "chat_template.json").get("chat_template")
    if isinstance(named, str):
        return {DEFAULT_TEMPLATE: named}
    return _named_templates(named) if isinstance(named, list) else {}


def _named_templates(entries: list[object]) -> dict[str, str]:
    templates: dict[str, str] = {}
    for entry in entries:
        match entry:
            case {"name": str(name), "template": str(source)}:
                templates[name] = source
    return templates
