"""What counts as the first content of a stream, whatever pieces it comes in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.stream_start import StreamStart, Verdict

CONTENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
ERROR = b'data: {"error":{"message":"died","code":500}}\n\n'
CASES = [
    (b"", Verdict.NOTHING_YET),
    (b": ping\n\n", Verdict.NOTHING_YET),
    (b": " + b"x" * 500 + b"\n\n", Verdict.NOTHING_YET),
    (b"\n\nretry: 1000\nid: 7\n\n", Verdict.NOTHING_YET),
    (b"data:\n\ndata: \n\n", Verdict.NOTHING_YET),
    (b"data: [DONE]\n\n", Verdict.NOTHING_YET),
    (b'event: ping\r\ndata: {"type": "ping"}\r\n\r\n', Verdict.NOTHING_YET),
    (b'event: response.created\ndata: {"response":{"id":"r"}}\n\n', Verdict.NOTHING_YET),
    (b'event: response.created\ndata: {"response":"' + b"x" * 99 + b'"}\n\n', Verdict.NOTHING_YET),
    (b'event: response.created\ndata: {"a":1}\n\n' + CONTENT, Verdict.CONTENT),
    (CONTENT, Verdict.CONTENT),
    (b"data:1\n\n", Verdict.CONTENT),
    (b": ping\n\n" + CONTENT + ERROR, Verdict.CONTENT),
    (b'data: {"error":null,"choices":[]}\n\n', Verdict.CONTENT),
    (b'event: message_start\ndata: {"type":"message_start"}\n\n', Verdict.CONTENT),
    (ERROR, Verdict.ERROR),
    (b'data: {"error": {"message":"' + b"x" * 500, Verdict.ERROR),
    (b": ping\n\n" + ERROR + b"data: [DONE]\n\n", Verdict.ERROR),
    (b'event: error\ndata: {"type":"overloaded"}\n\n', Verdict.ERROR),
    (b'event: response.failed\ndata: {"response":{}}\n\n', Verdict.ERROR),
    (b'data: {"object":"error","message":"died"}\n\n', Verdict.ERROR),
    (b'data: {"er', Verdict.NOTHING_YET),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_whole(text: bytes, expected: Verdict) -> None:
    assert StreamStart().feed(text) is expected


@given(st.sampled_from(CASES), st.lists(st.integers(0, 600), max_size=8))
def test_in_pieces(case: tuple[bytes, Verdict], cuts: list[int]) -> None:
    text, expected = case
    start = StreamStart()
    bounds = [0, *sorted(cuts), len(text) + 600]
    for begin, end in pairwise(bounds):
        start.feed(text[begin:end])
    assert start.verdict is expected


def test_byte_by_byte() -> None:
    for text, expected in CASES:
        start = StreamStart()
        for byte in text:
            start.feed(bytes([byte]))
        assert start.verdict is expected, text


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_no_bytes_break_it_and_it_holds_little(chunks: list[bytes]) -> None:
    start = StreamStart()
    for piece in chunks:
        before = start.verdict
        after = start.feed(piece)
        assert before in (Verdict.NOTHING_YET, after)
        assert len(start._line) <= 64
