"""Text of others: one line, printable, bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.plain_text import MAX_TEXT, plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a worker", "a worker"),
        ("grün 模型", "grün 模型"),
        ("a\nINFO forged", "a INFO forged"),
        ("a\r\n\tb", "a   b"),
        ("a\x1b[2Jb", "a?[2Jb"),
        ("a\x00\x07\x7f\x9bb", "a????b"),
        ("a\u2028b\u2029c\x85d", "a b c d"),
        ("a\u202eb", "a?b"),
        ("a\ud800b", "a?b"),
    ],
)
def test_one_printable_line(text: str, expected: str) -> None:
    assert plain(text) == expected


@given(st.text(st.characters(), max_size=2 * MAX_TEXT), st.integers(1, MAX_TEXT))
def test_whatever_it_was(text: str, max_chars: int) -> None:
    shown = plain(text, max_chars)
    assert shown.isprintable()
    assert len(shown) <= max_chars + 1
    shown.encode()  # raises nothing
    assert len(shown) == min(len(text), max_chars + 1)
