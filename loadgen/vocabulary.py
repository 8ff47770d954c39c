"""A tokenizer's plain words: tokens that stay themselves in any company.

A plain word is a space and ASCII letters that the tokenizer keeps as one piece. Pre-tokenizers of the
usual kinds cut before each space, so a run of plain words tokenizes to exactly the ids it was made of.
The cut is a habit of tokenizers, not a law: ``text`` proves each text that it hands out.
"""

import re
from collections.abc import Sequence
from typing import Protocol

MAX_WORDS = 4096
_PLAIN = re.compile(r" [A-Za-z]{2,}")


class Tokenizer(Protocol):
    """What is needed of a prompt model."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


class SynthesisError(Exception):
    """Tokens that do not survive being text, or a tokenizer without plain words."""


class Vocabulary:
    """The plain words of one tokenizer.

    Attributes:
        token_ids: their ids, ascending; at most ``MAX_WORDS``, the first ones found.
        words: their texts, in the same order, each with its leading space.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_words: int = MAX_WORDS) -> None:
        """Search the tokenizer. O(vocabulary).

        Raises:
            SynthesisError: fewer than two plain words.
        """
        self._tokenizer = tokenizer
        found = _plain_words(tokenizer, max_words)
        if len(found) < 2:
            raise SynthesisError("the tokenizer has no plain words to make prompts of")
        self.token_ids = tuple(found)
        self.words = tuple(found.values())

    def text(self, token_ids: Sequence[int]) -> str:
        """The text that tokenizes to exactly these ids.

        Raises:
            SynthesisError: it does not.
        """
        text = self._tokenizer.decode(token_ids)
        if self._tokenizer.encode(text, add_special_tokens=False) != list(token_ids):
            raise SynthesisError(f"{len(token_ids)} tokens do not survive as text")
        return text


def _plain_words(tokenizer: Tokenizer, max_words: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for token_id in range(tokenizer.vocab_size):
        word = tokenizer.decode([token_id])
        if not _PLAIN.fullmatch(word):
            continue
        # Twice in a row: neither the start of a text nor a neighbour changes it.
        if tokenizer.encode(word + word, add_special_tokens=False) == [token_id, token_id]:
            found[token_id] = word
        if len(found) >= max_words:
            break
    return found
