"""Answers are words that become the same tokens again."""

from itertools import islice

import pytest

from prompt import Api, PromptModel, bundled_model_dir, view_request
from prompt.tokenizer import unpack_tokens
from worker.vocabulary import Vocabulary, vocabulary_of


@pytest.fixture(scope="module")
def model() -> PromptModel:
    return PromptModel.load(bundled_model_dir())


@pytest.fixture(scope="module")
def vocabulary(model: PromptModel) -> Vocabulary:
    return vocabulary_of(model)


def answer(vocabulary: Vocabulary, seed: int) -> tuple[int, ...]:
    return tuple(islice(vocabulary.sampler.answer((seed,)), 40))


def test_text_of_an_answer_is_tokenized_back_to_it(
    model: PromptModel, vocabulary: Vocabulary
) -> None:
    for seed in range(50):
        ids = answer(vocabulary, seed)
        text = vocabulary.text(ids)
        assert model.encode(text, add_special_tokens=False) == list(ids)
        assert model.decode(ids) == text


def test_next_turn_begins_with_the_last_one(model: PromptModel, vocabulary: Vocabulary) -> None:
    def tokens(messages: bytes) -> list[int]:
        view = view_request(Api.CHAT, b'{"messages": [%s]}' % messages)
        return unpack_tokens(model.prompt_tokens(view).tokens)

    question = b'{"role": "user", "content": "Tell me about the sea."}'
    first = tokens(question)
    ids = answer(vocabulary, 1)
    said = b'{"role": "assistant", "content": "%s"}' % vocabulary.text(ids).encode()
    second = tokens(b", ".join([question, said, question]))
    assert second[: len(first) + len(ids)] == [*first, *ids]
