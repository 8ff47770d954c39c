"""Proof at load over a fixed corpus, id by id: that two tokenizers agree, that a text may be cut.

The corpus holds what fast tokenizers have been seen to get wrong: composed and decomposed accents, emoji
sequences, scripts without blanks, runs of blanks and breaks of every kind, digits, code, control
characters, special tokens typed by users, long runs, and pseudo-random mixtures of all that.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from protocol import TokenBytes

_TEXTS = (
    "",
    " ",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog. It's what they'll've said: \"don't\", I'M, WE'RE.",
    "   leading, trailing   \n\n\t mixed \r\n breaks \r and\u2028separators\u2029 \u00a0\u3000wide  ",
    "a\nb\n\nc\n\n\nd\n \n  \n   e\t\t\tf \u000b\u000c\u0085 g",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 1e-9 0xFF ٣٤٥ ¹²³ ½ Ⅷ",
    "caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m A\u030angstro\u0308m \ufb01 \u01c6 \u0130i\u0307 ß ẞ",
    "日本語のテキストと中文文本，以及한국어 텍스트。「引用」、句読点！",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก",
    "👩\u200d👩\u200d👧\u200d👦 👍🏽 🇩🇪🇫🇷 ❤\ufe0f 1\ufe0f\u20e3 \U0001f9d1\u200d\U0001f680 \u200b\u200c\ufeff\u2060",
    'def f(x: int = 3) -> dict[str, "Any"]:\n    """Doc."""\n    return {**x, "k": [i ** 2 for i in range(10)]}\n',
    '{"name": "get_weather", "arguments": {"city": "Zürich", "n": 1.0, "q": null, "u": "\\u00e9"}}',
    '#include <stdio.h>\nint main(void) {\n\tprintf("%d\\n", a->b != c && d || ~e);\n\treturn 0;\n}\n',
    "<html><body class='x'>&amp;&nbsp;<!-- c --></body></html> https://example.com/a?b=c&d=%20#e user@example.com",
    "\x00\x01\x02\x07\x08\x1b[31mred\x1b[0m\x7f\x80\x9f\u00ad\ufffd\ufffe\U0010ffff\U000e0001",
    "!!!???...---===###***___```~~~ (((a))) [[[b]]] {{{c}}} <<<d>>> $$$ @@@ %%% ^^^ &&& |||",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "word" * 300,
    " " * 200 + "x" + "\n" * 100 + "\t" * 50 + "7" * 90,
    "camelCaseWordsAndSNAKE_CASE_WORDS and kebab-case-words, Mc'Donald o'clock rock'n'roll 'tis",
    "<s> </s> <pad> <unk> [CLS] [SEP] [MASK] <|im_start|>user<|im_end|> <|endoftext|> <|eot_id|> [INST] <think>",
)
_ALPHABET = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789     \n\n\r\t.,:;!?'\"-_()[]{}<>|/\\@#$%&*+=~`^"
    "éèüößñçåø\u0301\u0308\u200d\ufe0f\u00a0\u2028日本語中文한국어привет👍🏽👩🚀नमस्तेשלוםمرحبا½²Ⅷ\x00"
)
_NUM_MIXTURES = 300


class Encoder(Protocol):
    """What is compared."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes: ...


def first_difference(one: Encoder, other: Encoder, added_tokens: Sequence[str]) -> str | None:
    """The first text of the corpus that the two encode differently; None if they agree on all of it.

    O(corpus), some 100,000 characters.

    Args:
        added_tokens: tokens with a text of their own, such as a user may type.
    """
    for text in _corpus(added_tokens):
        for add_special_tokens in (False, True):
            ids = one.encode(text, add_special_tokens=add_special_tokens)
            if ids != other.encode(text, add_special_tokens=add_special_tokens):
                return text
    return None


class PieceEncoder(Encoder, Protocol):
    """What texts are cut for."""

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]: ...


def cuts_change_nothing(encoder: PieceEncoder, tokens: Sequence[str]) -> bool:
    """Whether the corpus, cut before each of these tokens by turns, encodes as it does in one. O(corpus).

    Args:
        tokens: at least one.
    """
    texts = list(_corpus(tokens))
    pieces = [f"{tokens[i % len(tokens)]}{text}" for i, text in enumerate(texts)]
    whole = encoder.encode("".join(pieces), add_special_tokens=False)
    return encoder.encode_pieces(pieces)[0] == whole


def _corpus(added_tokens: Sequence[str]) -> Iterator[str]:
    yield from _TEXTS
    yield "\n".join(_TEXTS)
    for token in added_tokens:
        yield f"{token}a {token} b{token}\n{token}{token} {token[:-1]} {token.upper()}{token}"
    rng = random.Random(0)
    tokens = list(added_tokens) or ["<|end|>"]
    for _ in range(_NUM_MIXTURES):
        pieces = [
            rng.choice(tokens) if rng.random() < 0.03 else rng.choice(_ALPHABET)
            for _ in range(rng.randrange(1, 120))
        ]
        yield "".join(pieces)
