"""Records of a trace as requests, in each form."""

from dataclasses import replace

import orjson
import pytest

from loadgen import (
    BlockSynthesis,
    ChatRecord,
    PromptForm,
    TraceRecord,
    TraceRequests,
    Vocabulary,
)
from tests.loadgen.words import WordTokenizer

VOCABULARY = Vocabulary(WordTokenizer())
SYNTHESIS = BlockSynthesis(VOCABULARY.token_ids, block_size=16)
MAKE = TraceRequests("m", VOCABULARY, SYNTHESIS)
BLOCKS = TraceRecord(1500.0, 20, 30, (4, 5))
CHAT = ChatRecord(2000.0, ({"role": "user", "content": "hello"},))


def made(make: TraceRequests, record: TraceRecord | ChatRecord) -> tuple[str, dict[str, object]]:
    (request,) = make.of([record])
    assert request.at_s == record.timestamp_ms / 1e3
    return request.path, orjson.loads(request.body)


def test_ids_go_as_completions_or_as_generate() -> None:
    tokens = SYNTHESIS.tokens(BLOCKS)
    path, body = made(MAKE, BLOCKS)
    assert (path, body["prompt"], body["max_tokens"]) == ("/v1/completions", tokens, 30)
    path, body = made(replace(MAKE, form=PromptForm.GENERATE), BLOCKS)
    assert (path, body["input_ids"]) == ("/generate", tokens)


def test_text_and_chat_carry_the_same_words() -> None:
    text = VOCABULARY.text(SYNTHESIS.tokens(BLOCKS))
    path, body = made(replace(MAKE, form=PromptForm.TEXT), BLOCKS)
    assert (path, body["prompt"]) == ("/v1/completions", text)
    path, body = made(replace(MAKE, form=PromptForm.CHAT), BLOCKS)
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize("form", PromptForm)
def test_a_chat_stays_a_chat(form: PromptForm) -> None:
    path, body = made(replace(MAKE, form=form), CHAT)
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("record", "limit", "max_tokens"),
    [
        (BLOCKS, 10, 10),
        (BLOCKS, 100, 30),
        (replace(BLOCKS, output_length=0), None, 1),
        (CHAT, 10, 10),
        (replace(CHAT, max_tokens=5), 10, 5),
        (replace(CHAT, max_tokens=50), None, 50),
    ],
)
def test_outputs_are_cut(
    record: TraceRecord | ChatRecord, limit: int | None, max_tokens: int
) -> None:
    _, body = made(replace(MAKE, max_output_tokens=limit), record)
    assert body["max_tokens"] == max_tokens
