"""Where a text may be cut so that its pieces, encoded one by one, give the tokens of the whole.

Before anything else a tokenizer looks for its added tokens, from left to right, the longest at each place, and
encodes what lies between them piece by piece. So a cut before an added token changes nothing, provided that
the token is found wherever it is written, and takes nothing from the text before it:

    - it is looked for in the text as it stands (not normalized first), whatever stands beside it (no whole
      word), and takes no blanks on its left; none of the other tokens asks for whole words
    - it lies within no other added token, and no other one can begin before it and end in its midst

The piece after a cut begins with the token, so that what a tokenizer does at the very beginning of a text
alone (a blank put in front) is done there as often as in the whole: never. Of the tokens that qualify those
are used that a chat template writes, which stand between the turns of a conversation.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MAX_CUT_TOKENS = 32
"""Further ones are not looked for: a text is cut in fewer places."""


class AddedToken(NamedTuple):
    """A token with a text of its own.

    Attributes:
        is_normalized: looked for after the text has been normalized.
        is_whole_word: found only where no letter stands beside it.
        takes_left: takes the blanks on its left.
    """

    content: str
    is_normalized: bool = False
    is_whole_word: bool = False
    takes_left: bool = False


class CutPoints:
    """Finds places to cut at."""

    def __init__(self, tokens: Sequence[str]) -> None:
        """``tokens``: provable ones (`provable_tokens`), at least one."""
        self._pattern = re.compile("|".join(map(re.escape, tokens)))

    def places(self, text: str, start: int, min_chars: int) -> Iterator[int]:
        """Places after ``start`` where ``text`` may be cut, each at least so far from the last. O(text)."""
        search, place = self._pattern.search, start
        while (found := search(text, place + min_chars)) is not None:
            place = found.start()
            yield place


def provable_tokens(added: Sequence[AddedToken], texts: Iterable[str]) -> list[str]:
    """The added tokens that cut provably and are written in one of ``texts``, in a fixed order.

    O(added × (texts + written ones)).
    """
    if any(token.is_whole_word for token in added):
        return []
    text = "\n".join(texts)
    written = [token for token in added if token.content and token.content in text]
    contents = [token.content for token in added if token.content]
    proved = [token.content for token in written if _is_provable(token, contents)]
    return sorted(set(proved))[:MAX_CUT_TOKENS]


def _is_provable(token: AddedToken, contents: Sequence[str]) -> bool:
    content = token.content
    if token.is_normalized or token.takes_left or content[0].isspace():
        return False
    beginnings = tuple(content[:length] for length in range(1, len(content)))
    return not any(
        other.endswith(beginnings) or (content in other and content != other) for other in contents
    )
