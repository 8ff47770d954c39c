"""Token ids that a simulated answer is made of, and their texts.

Answers are words. Each word is one token on its own and after any other word, so that an answer sent
back in the next turn becomes the very tokens that were generated, and finds them in the cache.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from prompt import PromptModel
from worker.sampler import Sampler

_FIRST = re.compile(r"[A-Z][a-z]{2,}")
_NEXT = re.compile(r" [a-z]{2,}")
_ENOUGH = 16
_MAX_IDS = 8_192


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Which ids to answer with, and the text of each."""

    sampler: Sampler
    texts: Mapping[int, str]

    def text(self, token_ids: tuple[int, ...]) -> str:
        """What the ids say."""
        return "".join(self.texts[token_id] for token_id in token_ids)


def vocabulary_of(model: PromptModel) -> Vocabulary:
    """Pick the words among the first 8,192 ids of a tokenizer.

    Where it has too few of them, every id that decodes to printable text is taken; a next turn may
    then be tokenized differently.

    Raises:
        ValueError: nothing decodes to text.
    """
    texts = {
        token_id: model.decode([token_id]) for token_id in range(min(model.vocab_size, _MAX_IDS))
    }
    words = {i: text for i, text in texts.items() if _is_word(model, i, text)}
    first = tuple(i for i, text in words.items() if _FIRST.fullmatch(text))
    following = tuple(i for i, text in words.items() if _NEXT.fullmatch(text))
    if min(len(first), len(following)) < _ENOUGH:
        first = following = tuple(i for i, text in texts.items() if text and text.isprintable())
    if not first:
        raise ValueError("the tokenizer decodes no token to text")
    sampler = Sampler(first, following)
    return Vocabulary(sampler, {i: texts[i] for i in {*first, *following}})


def _is_word(model: PromptModel, token_id: int, text: str) -> bool:
    if not _FIRST.fullmatch(text) and not _NEXT.fullmatch(text):
        return False
    return model.encode(text, add_special_tokens=False) == [token_id]
