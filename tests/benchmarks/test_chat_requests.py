import json
from random import Random
from typing import Any

import pytest

from benchmarks.chat_requests import (
    TURN_BYTES,
    chat_body,
    conversation,
    growth,
    num_tokens,
    streams,
    text_of,
)
from benchmarks.stub_engine import Wish
from prompt import PromptModel, bundled_model_dir


def messages_of(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body)["messages"]
    return found


@pytest.mark.parametrize("size_bytes", [1, 100, 2_000])
def test_a_text_has_its_size_and_its_seed_only(size_bytes: int) -> None:
    assert len(text_of(Random(1), size_bytes)) == size_bytes
    assert text_of(Random(1), size_bytes) == text_of(Random(1), size_bytes)


def test_chats_of_2_kb_share_all_but_their_end() -> None:
    one, other = chat_body(1), chat_body(2)
    assert abs(len(one) - 2_048) < 100
    assert len(one) == len(other)
    assert one != other
    contents = [messages_of(body)[1]["content"] for body in (one, other)]
    assert contents[0][:-6] == contents[1][:-6]


@pytest.mark.parametrize("size_bytes", [8_192, 32_768, 200_000])
def test_a_conversation_begins_at_its_size_and_grows_by_a_turn(size_bytes: int) -> None:
    first, *later = conversation(7, size_bytes, 3)
    assert 0.8 < len(first) / size_bytes < 1.2
    before = first
    for body in later:
        assert TURN_BYTES <= len(body) - len(before) < TURN_BYTES * 1.2
        assert messages_of(body)[: len(messages_of(before))] == messages_of(before)
        roles = [message["role"] for message in messages_of(body)]
        assert roles == ["system", *(["user", "assistant"] * len(roles))[: len(roles) - 1]]
        assert roles[-1] == "user"
        before = body


def test_conversations_begin_differently() -> None:
    texts = {messages_of(conversation(seed, 2_048, 0)[0])[1]["content"] for seed in range(5)}
    assert len({text[:40] for text in texts}) == 5


def test_a_growing_request_says_what_was_seen_before_it() -> None:
    model = PromptModel.load(bundled_model_dir())
    grown = growth(model, range(2), 2_048, 2)
    assert [len(row) for row in (grown.first, *grown.turns)] == [2, 2, 2]
    bodies = conversation(1, 2_048, 2)
    counts = [num_tokens(model, body) for body in bodies]
    column = [row[1] for row in (grown.first, *grown.turns)]
    for request, body, tokens, seen in zip(column, bodies, counts, [0, *counts], strict=False):
        sent = request.partition(b"\r\n\r\n")[2]
        assert messages_of(sent) == messages_of(body)
        assert Wish.found_in(sent) == Wish(0, tokens, seen)


def test_a_streamed_request_asks_for_its_events() -> None:
    (request,) = streams(1, 300)
    body = request.partition(b"\r\n\r\n")[2]
    assert Wish.found_in(body) == Wish(300)
    assert json.loads(body)["stream"] is True
