"""A router's refusals in its own words, whatever form they come in."""

import pytest

from kvroute.refusal import refusal_words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such model", "code": "model_not_found"}}', "no such model"),
        (b'{"detail": "no worker zz"}', "no worker zz"),
        (b'{"detail": [{"loc": ["query", "api"], "msg": "required"}]}', "query.api: required"),
        (
            b'{"detail": [{"loc": ["body", "x"], "msg": "a"}, {"msg": "b"}, 5]}',
            "body.x: a; b; ",
        ),
        (b"Bad\nGateway", "Bad Gateway"),
        (b'{"detail": ""}', '{"detail": ""}'),
        (b"[1]", "[1]"),
        (b"", ""),
        (b"\xff\x1b[2J", "�?[2J"),
    ],
)
def test_words(body: bytes, words: str) -> None:
    assert refusal_words(body) == words


def test_a_long_page_is_cut() -> None:
    assert len(refusal_words(b"x" * 10_000)) == 301
