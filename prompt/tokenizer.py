"""Text in, token ids out: one protocol over two libraries.

``tokenizers`` is the reference that engines use themselves; ``fastokens`` does the same some fifty times
faster. It is used only where a self-check at load finds it equal to the reference for this very
tokenizer, and the reference goes on to decode for it.

Both release the interpreter's lock while they encode, so a long text can be encoded in a thread. Of the
reference that holds for its batch call alone, which is the cheaper one for short texts, too.
"""

import logging
import struct
from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import tokenizers

from prompt.cut_points import AddedToken
from prompt.errors import PromptModelError
from prompt.self_check import first_difference
from protocol import TokenBytes, pack_tokens

logger = logging.getLogger(__name__)

# Texts that a user may type are checked one by one; more of them prove nothing new.
_MAX_CHECKED_TOKENS = 256


class TokenizerChoice(StrEnum):
    """Which library encodes."""

    AUTO = "auto"  # the fast one where it is installed and proves equal, else the reference
    FAST = "fast"  # the fast one, or an error
    HF = "hf"  # the reference


class Tokenizer(Protocol):
    """One model's tokenizer. Thread-safe."""

    @property
    def backend(self) -> str:
        """The library that encodes: fastokens or tokenizers."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        """Token ids of ``text``; O(text).

        Args:
            add_special_tokens: put the model's own tokens around the text (its start token, usually).

        Raises:
            ValueError: the text holds a lone surrogate, which no tokenizer takes.
        """

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]:
        """Token ids of several texts in a row, no tokens put around any; O(texts).

        Returns:
            The ids, and at which byte of them those of each text begin.

        Raises:
            ValueError: a text holds a lone surrogate.
        """

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens written out; ids beyond the vocabulary have none."""


def load_tokenizer(
    path: Path, choice: TokenizerChoice = TokenizerChoice.AUTO
) -> "HfTokenizer | FastTokenizer":
    """Load a ``tokenizer.json`` and choose the library that encodes; the choice is logged by the directory's name.

    Raises:
        PromptModelError: the file is no tokenizer, or the fast library was asked for and is missing or differs.
    """
    reference, name = HfTokenizer(path), path.parent.name or path.name
    if choice is TokenizerChoice.HF:
        logger.info("%s: encoding with tokenizers, as configured", name)
        return reference
    fast = _load_fast(path, reference)
    if isinstance(fast, FastTokenizer):
        logger.info("%s: encoding with fastokens, found equal to tokenizers", name)
        return fast
    if choice is TokenizerChoice.FAST:
        raise PromptModelError(f"{path}: {fast}")
    logger.info("%s: encoding with tokenizers: %s", name, fast)
    return reference


class HfTokenizer:
    """The reference: Hugging Face's ``tokenizers``."""

    backend = "tokenizers"

    def __init__(self, path: Path) -> None:
        """Raises PromptModelError: the file is no tokenizer."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise PromptModelError(f"{path}: not a tokenizer: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        # With dropout the same text is encoded differently from time to time.
        self.is_random = bool(getattr(self._tokenizer.model, "dropout", None))

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        try:
            encoded = self._tokenizer.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
        except TypeError as error:
            raise ValueError("the text holds a lone surrogate") from error
        return pack_tokens(encoded[0].ids)

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]:
        try:
            encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError as error:
            raise ValueError("a text holds a lone surrogate") from error
        pieces = [pack_tokens(piece.ids) for piece in encoded]
        places = list(accumulate(map(len, pieces), initial=0))
        return TokenBytes(b"".join(pieces)), places[:-1]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def added_tokens(self) -> list[AddedToken]:
        """Those whose text becomes one token wherever it stands, such as ``<|end|>``."""
        return [
            AddedToken(token.content, token.normalized, token.single_word, token.lstrip)
            for token in self._tokenizer.get_added_tokens_decoder().values()
        ]


class _Native(Protocol):
    """The part of fastokens' tokenizer that is used."""

    def no_truncation(self) -> None: ...

    def no_padding(self) -> None: ...

    def encode_batch_flat(
        self,
        inputs: list[str],
        add_special_tokens: bool,
    ) -> tuple[bytes, bytes]:
        """Ids of all inputs as little-endian u32, and where each input's begin."""


class FastTokenizer:
    """fastokens, beside the reference that it was found equal to."""

    backend = "fastokens"

    def __init__(self, native: _Native, reference: HfTokenizer) -> None:
        native.no_truncation()
        native.no_padding()
        self._native = native
        self._reference = reference
        self.vocab_size = reference.vocab_size
        self.is_random = reference.is_random

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        return TokenBytes(self._native.encode_batch_flat([text], add_special_tokens)[0])

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]:
        # One by one: a batch wakes threads, which cost more than what they share.
        encode = self._native.encode_batch_flat
        pieces = [encode([text], add_special_tokens=False)[0] for text in texts]
        places = list(accumulate(map(len, pieces), initial=0))
        return TokenBytes(b"".join(pieces)), places[:-1]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._reference.decode(token_ids)

    def added_tokens(self) -> list[AddedToken]:
        """Those whose text becomes one token wherever it stands, such as ``<|end|>``."""
        return self._reference.added_tokens()


def unpack_tokens(tokens: TokenBytes) -> list[int]:
    """Packed ids as numbers."""
    return list(struct.unpack(f"<{len(tokens) // 4}I", tokens))


def _load_fast(path: Path, reference: HfTokenizer) -> FastTokenizer | str:
    """The fast tokenizer, or why it is not used."""
    try:
        library = import_module("fastokens")
    except ImportError:
        return "fastokens is not installed"
    try:
        fast = FastTokenizer(library.Tokenizer.from_file(str(path)), reference)
        typed = [token.content for token in reference.added_tokens()[:_MAX_CHECKED_TOKENS]]
        difference = first_difference(fast, reference, typed)
    except (ValueError, RuntimeError, TypeError, OSError, AttributeError) as error:
        return f"fastokens cannot take this tokenizer: {error}"
    return (
        fast if difference is None else f"fastokens differs from tokenizers on {difference[:80]!r}"
    )
