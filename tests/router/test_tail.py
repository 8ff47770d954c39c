"""What is read from the end of an answer, and from nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tail import TAIL_BYTES, Tail, Usage, has_error_event, read_usage

CHAT = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
RESPONSES = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 2}
MESSAGES = {"input_tokens": 1, "cache_read_input_tokens": 8, "output_tokens": 2}
META = {"prompt_tokens": 9, "cached_tokens": 8, "completion_tokens": 2, "id": "x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"usage": CHAT, "metrics": None}), Usage(9, 8, 2)),
        (json.dumps({"usage": CHAT}, separators=(",", ":")), Usage(9, 8, 2)),
        (json.dumps({"usage": CHAT}, indent=2), Usage(9, 8, 2)),
        (json.dumps({"usage": RESPONSES}), Usage(9, 8, 2)),
        (json.dumps({"usage": MESSAGES}), Usage(9, 8, 2)),
        (json.dumps({"text": "a", "meta_info": META}), Usage(9, 8, 2)),
        (f"data: {json.dumps({'choices': [], 'usage': CHAT})}\n\ndata: [DONE]\n\n", Usage(9, 8, 2)),
        (
            (
                f'data: {{"usage": {json.dumps({"prompt_tokens": 1})}}}\n\n'
                f"data: {json.dumps({'usage': CHAT})}\n\n"
            ),
            Usage(9, 8, 2),
        ),
        (f'data: {{"usage": {json.dumps(CHAT)}}}\n\ndata: {{"usage": null}}\n\n', Usage(9, 8, 2)),
        (json.dumps({"content": json.dumps({"usage": CHAT})}), Usage()),
        ('{"usage": {"prompt_tokens": "9", "completion_tokens": -1}}', Usage()),
        ('{"usage": {"prompt_tokens": true, "prompt_tokens_details": null}}', Usage()),
        ('{"usage": {"prompt_tokens": 3', Usage()),
        ("", Usage()),
        ("no json at all", Usage()),
    ],
)
def test_usage(text: str, expected: Usage) -> None:
    assert read_usage(text.encode()) == expected


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_break_it(before: bytes, after: bytes) -> None:
    for tail in (before + after, before + b'"usage":' + after, before + b'"meta_info":{' + after):
        read_usage(tail)
        has_error_event(tail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('data: {"error":{"code":500}}\n\ndata: [DONE]\n\n', True),
        ('data: {"error": {"code":500}}\n\n', True),
        ('event: error\ndata: {"type":"error"}\n\n', True),
        ('data: {"error":null,"choices":[]}\n\n', False),
        ('data: {"choices":[{"delta":{"content":"{\\"error\\":1}"}}]}\n\ndata: [DONE]\n\n', False),
        ("data: [DONE]\n\n", False),
        ("", False),
    ],
)
def test_error_events(text: str, expected: bool) -> None:
    assert has_error_event(text.encode()) is expected


@given(st.lists(st.binary(max_size=9000), max_size=30))
def test_the_tail_is_the_end(chunks: list[bytes]) -> None:
    tail = Tail()
    for piece in chunks:
        tail.append(piece)
    assert tail.last_bytes() == b"".join(chunks)[-TAIL_BYTES:]


@pytest.mark.parametrize(
    ("text", "expected"), [(b"", True), (b"a\n\n", True), (b"a\r\n\r\n", True), (b"a\n", False)]
)
def test_between_two_events(text: bytes, expected: bool) -> None:
    tail = Tail()
    tail.append(text)
    assert tail.ends_event() is expected
