"""Plain words, and texts that are proved before they are handed out."""

import pytest

from loadgen import SynthesisError, Vocabulary
from prompt import PromptModel, bundled_model_dir
from tests.loadgen.words import WORDS, WordTokenizer


def test_keeps_only_words_that_survive() -> None:
    vocabulary = Vocabulary(WordTokenizer())
    assert vocabulary.words == tuple(WORDS)
    assert vocabulary.token_ids == tuple(range(3, 3 + len(WORDS)))


def test_is_bounded() -> None:
    assert Vocabulary(WordTokenizer(), max_words=5).words == tuple(WORDS[:5])


def test_a_tokenizer_without_plain_words_is_an_error() -> None:
    with pytest.raises(SynthesisError, match="no plain words"):
        Vocabulary(WordTokenizer(), max_words=1)


def test_text_that_would_not_survive_is_an_error() -> None:
    vocabulary = Vocabulary(WordTokenizer())
    assert vocabulary.text([3, 4]) == WORDS[0] + WORDS[1]
    with pytest.raises(SynthesisError, match="2 tokens"):
        vocabulary.text([3, 2])


def test_the_bundled_tokenizer_has_words_enough() -> None:
    vocabulary = Vocabulary(PromptModel.load(bundled_model_dir()))
    assert len(vocabulary.words) >= 256
    run = vocabulary.token_ids[:256] * 2
    assert vocabulary.text(run) == "".join(vocabulary.words[:256] * 2)
