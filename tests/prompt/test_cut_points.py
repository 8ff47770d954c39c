"""Which added tokens a text may be cut before."""

import pytest

from prompt.cut_points import MAX_CUT_TOKENS, AddedToken, CutPoints, provable_tokens

TURN, END = AddedToken("<|turn|>"), AddedToken("<|end|>")


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ([TURN, END], ["<|end|>", "<|turn|>"]),
        ([TURN, AddedToken("<|unwritten|>")], ["<|turn|>"]),
        ([TURN, END._replace(is_normalized=True)], ["<|turn|>"]),
        ([TURN, END._replace(takes_left=True)], ["<|turn|>"]),
        ([TURN, END._replace(is_whole_word=True)], []),  # what it looks at may be cut off
        ([TURN, AddedToken("<|turn|>s")], []),  # the longer one is found in its place
        ([TURN, AddedToken("x<|turn|>")], []),
        ([TURN, AddedToken("a<|t")], []),  # begins before it and ends in its midst
        ([TURN, AddedToken("|>b")], ["<|turn|>"]),  # begins in its midst: the earlier one is found
        ([AddedToken("aba")], []),  # overlaps with itself
        ([AddedToken(" end")], []),
        ([AddedToken("")], []),
        ([], []),
    ],
)
def test_tokens_that_cut_provably(added: list[AddedToken], expected: list[str]) -> None:
    assert provable_tokens(added, ["{{ '<|turn|>' }} aba end", "<|end|>"]) == expected


def test_no_more_than_some_are_looked_for() -> None:
    added = [AddedToken(f"<{number:03}>") for number in range(MAX_CUT_TOKENS + 5)]
    text = "".join(token.content for token in added)
    assert len(provable_tokens(added, [text])) == MAX_CUT_TOKENS


@pytest.mark.parametrize(
    ("text", "start", "min_chars", "expected"),
    [
        ("<a>12<b>34<a>", 0, 1, [5, 10]),
        ("<a>12<b>34<a>", 0, 6, [10]),
        ("<a>12<b>34<a>", 5, 1, [10]),
        ("<a>é<b>", 0, 1, [4]),
        ("12345", 0, 1, []),
        ("", 0, 1, []),
    ],
)
def test_places(text: str, start: int, min_chars: int, expected: list[int]) -> None:
    cuts = CutPoints(["<a>", "<b>"])
    assert list(cuts.places(text, start, min_chars)) == expected
