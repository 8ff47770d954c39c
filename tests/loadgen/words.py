"""A tokenizer small enough to reason about: words after spaces, some of which do not survive."""

from collections.abc import Sequence

WORDS = [f" {a}{b}" for a in "abcdefgh" for b in "abcdefgh"]


class WordTokenizer:
    """One id a word of ``WORDS``; between them stand ids that are no plain words.

    Id 0 is a special token, id 1 a lone letter, id 2 a word that the tokenizer spells in two pieces.
    """

    texts = ("<s>", "x", " xy", *WORDS)
    vocab_size = len(texts)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = [0] if add_special_tokens else []
        while text:
            if text.startswith(" xy"):
                ids, text = [*ids, 1, 1], text[3:]
                continue
            length = 3 if text[0] == " " else 1
            ids.append(self.texts.index(text[:length]))
            text = text[length:]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(self.texts[token_id] for token_id in token_ids)
