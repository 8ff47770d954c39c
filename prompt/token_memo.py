"""A memo of encoded beginnings, so that a conversation that grows pays for its new part alone.

    seen     |- system -|- user -|- assistant -|- user -| assist…
    asked    |- system -|- user -|- assistant -|- user -|- assistant -|- user -| assist…
              taken from the memo up to the last cut that both share     encoded

Texts are cut only where pieces provably encode as the whole does (`CutPoints`), and where a tokenizer shows no
such place it goes without a memo. Texts of which the model puts tokens of its own around (``add_special_tokens``)
and short ones are encoded as ever.

One memo serves all models of a process, within one bound: there texts that were not asked for the longest go
and are encoded anew when they come back.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from threading import Lock
from typing import NamedTuple

from prompt.cut_points import CutPoints, provable_tokens
from prompt.prefix_table import CHUNK, PrefixTable, TableLimits, chunk_names
from prompt.self_check import cuts_change_nothing
from prompt.tokenizer import FastTokenizer, HfTokenizer, Tokenizer
from protocol import TokenBytes

_MIN_PIECE_CHARS = 4096
_CUT_BYTES = 128


class Encoded(NamedTuple):
    """The tokens of a text, and where it may be cut.

    Attributes:
        cuts: characters of text before each cut, ascending.
        places: bytes of packed tokens before each.
    """

    tokens: TokenBytes
    cuts: Sequence[int]
    places: Sequence[int]


class MemoCounts(NamedTuple):
    """What a memo holds, and what came of it so far: lookups that found something and that did not, entries
    that went at the bound."""

    num_entries: int
    size_bytes: int
    num_hits: int
    num_misses: int
    num_evicted: int


_NOTHING = Encoded(TokenBytes(b""), (), ())


class TokenMemo:
    """Encoded beginnings of many tokenizers. Thread-safe."""

    def __init__(self, limits: TableLimits) -> None:
        self._table: PrefixTable[str, Encoded] = PrefixTable(limits)
        self._spaces = count()
        self._lock = Lock()

    def new_space(self) -> int:
        """A number for one tokenizer."""
        return next(self._spaces)

    def find(self, space: int, text: str, names: Sequence[int]) -> tuple[Encoded, int]:
        """A text that begins like this one, and how many of its cuts lie in what they share. O(text)."""
        with self._lock:
            found = self._table.find(space, text, names)
        if found is None:
            return _NOTHING, 0
        return found.value, bisect_right(found.value.cuts, found.num_common)

    def put(self, space: int, text: str, names: Sequence[int], encoded: Encoded) -> None:
        """Keep what ``text`` was encoded to."""
        size_bytes = len(encoded.tokens) + _CUT_BYTES * len(encoded.cuts)
        with self._lock:
            self._table.put(space, text, names, encoded, size_bytes)

    def counts(self) -> MemoCounts:
        """For metrics."""
        table = self._table
        hits, misses, evicted = table.num_hits, table.num_misses, table.num_evicted
        return MemoCounts(len(table), table.size_bytes, hits, misses, evicted)

    def check(self) -> None:
        """Verify the invariants."""
        with self._lock:
            self._table.check()


class RememberingTokenizer:
    """A tokenizer that looks into a memo first. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, cuts: CutPoints, memo: TokenMemo) -> None:
        self.tokenizer = tokenizer
        self.backend = tokenizer.backend
        self.vocab_size = tokenizer.vocab_size
        self._cuts = cuts
        self._memo = memo
        self._space = memo.new_space()

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        if add_special_tokens or len(text) < CHUNK:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        names = chunk_names(self._space, text)
        known, num_cuts = self._memo.find(self._space, text, names)
        start, place = (
            (known.cuts[num_cuts - 1], known.places[num_cuts - 1]) if num_cuts else (0, 0)
        )
        cuts = list(self._cuts.places(text, start, _MIN_PIECE_CHARS))
        ids, begins = self.tokenizer.encode_pieces(_pieces(text, start, cuts))
        tokens = TokenBytes(b"".join((memoryview(known.tokens)[:place], ids)))
        if cuts:
            all_cuts = [*known.cuts[:num_cuts], *cuts]
            places = [*known.places[:num_cuts], *(place + begin for begin in begins[1:])]
            self._memo.put(self._space, text, names, Encoded(tokens, all_cuts, places))
        return tokens

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]:
        return self.tokenizer.encode_pieces(texts)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids)


def remembering(
    tokenizer: HfTokenizer | FastTokenizer, written: Iterable[str], memo: TokenMemo
) -> "RememberingTokenizer | str":
    """The tokenizer with a memo, or why it has none.

    O(added tokens × texts), and a text of 100,000 characters is encoded twice.

    Args:
        written: texts in which the tokens stand that separate turns, such as the chat templates.
    """
    if tokenizer.is_random:
        return "it is random"
    tokens = provable_tokens(tokenizer.added_tokens(), written)
    if not tokens:
        return "its chat template writes no token that provably cuts"
    if not cuts_change_nothing(tokenizer, tokens):
        return "pieces are encoded differently from the whole"
    return RememberingTokenizer(tokenizer, CutPoints(tokens), memo)


def _pieces(text: str, start: int, cuts: Sequence[int]) -> list[str]:
    """The text from ``start`` on in pieces, each but the first begins at a cut."""
    return [text[begin:end] for begin, end in pairwise([start, *cuts, len(text)])]
