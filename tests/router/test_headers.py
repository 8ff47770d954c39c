"""Header rules without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.headers import (
    RawHeader,
    is_encoded,
    is_event_stream,
    is_sendable,
    num_bytes,
    read_answer_head,
    read_request_head,
    without_base,
)

NAMES = st.sampled_from(
    [b"connection", b"te", b"x-a", b"x-b", b"transfer-encoding", b"content-length", b"set-cookie"]
)
VALUES = st.sampled_from([b"x-a", b"close, X-B", b"chunked", b"5", b"", b"keep-alive"])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=8)


@given(HEADERS, st.sampled_from([200, 204, 304, 404]))
def test_nothing_of_the_hop_is_relayed_and_nothing_else_is_lost(
    raw: list[RawHeader], status: int
) -> None:
    named = {
        token.strip().lower()
        for name, value in raw
        if name == b"connection"
        for token in value.split(b",")
    }
    head = read_answer_head([(name.title(), value) for name, value in raw], status)
    relayed = head.relayed
    names = [name for name, _ in relayed]
    assert not {b"connection", b"te", b"transfer-encoding"} & set(names)
    assert not named & set(names)
    is_chunked = b"transfer-encoding" in {name for name, _ in raw}
    if status in (204, 304) or is_chunked:
        assert b"content-length" not in names
    assert head.has_length is (b"content-length" in names)
    kept = [field for field in raw if field[0] in (b"x-a", b"x-b", b"set-cookie")]
    assert [field for field in relayed if field[0] != b"content-length"] == [
        field for field in kept if field[0] not in named
    ]


def test_what_the_front_door_reads() -> None:
    head = read_request_head(
        [
            (b"content-length", b"12"),
            (b"content-encoding", b"GZIP"),
            (b"content-type", b"application/json; charset=utf-8"),
            (b"expect", b"100-Continue"),
            (b"x-request-id", b"abc"),
        ]
    )
    assert head.content_length == 12
    assert head.is_encoded
    assert head.is_json
    assert head.request_id == "abc"
    assert [name for name, _ in head.forwarded] == [b"content-encoding", b"content-type"]


@pytest.mark.parametrize(
    ("name", "value", "is_stream", "is_coded"),
    [
        (b"Content-Type", b" Text/Event-Stream; charset=utf-8", True, False),
        (b"Content-Type", b"application/json", False, False),
        (b"Content-Encoding", b"GZIP", False, True),
        (b"content-encoding", b" identity ", False, False),
        (b"content-encoding", b"", False, False),
        (b"X-A", b"text/event-stream", False, False),
    ],
)
def test_what_is_read_in_an_answer(
    name: bytes, value: bytes, is_stream: bool, is_coded: bool
) -> None:
    head = read_answer_head([(name, value), (b"X-B", b"1")], 200)
    assert (head.is_event_stream, head.is_encoded) == (is_stream, is_coded)
    assert (is_event_stream(head.relayed), is_encoded(head.relayed)) == (is_stream, is_coded)
    assert head.relayed == [(name.lower(), value), (b"x-b", b"1")]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b"X-A", b"a\tb \xe9", True),
        (b"X-A", b"", True),
        (b"X-A", b"a\x7f", False),
        (b"X-A", b"a\r\nX-B: 1", False),
        (b"X A", b"1", False),
        (b"X-\xe9", b"1", False),
    ],
)
def test_what_an_answer_may_hold(name: bytes, value: bytes, expected: bool) -> None:
    assert is_sendable([(b"content-length", b"2"), (name, value)]) is expected


def test_identity_is_no_encoding() -> None:
    assert not read_request_head([(b"content-encoding", b"identity")]).is_encoded


@pytest.mark.parametrize(
    ("location", "url", "expected"),
    [
        (b"http://w:1/v1/completions", "http://w:1", b"/v1/completions"),
        (b"HTTP://W:1/a?b#c", "http://w:1", b"/a?b#c"),
        (b"http://w:1", "http://w:1", b"/"),
        (b"http://w:1?a", "http://w:1", b"/?a"),
        (b"http://w:1/base/a", "http://w:1/base", b"/a"),
        (b"http://w:1/based/a", "http://w:1/base", b"/based/a"),
        (b"http://w:1//evil.example/", "http://w:1", b"/evil.example/"),
        (b"http://w:12/a", "http://w:1", b"http://w:12/a"),
        (b"http://w:1.example/a", "http://w:1", b"http://w:1.example/a"),
        (b"http://elsewhere/a", "http://w:1", b"http://elsewhere/a"),
        (b"/a", "http://w:1", b"/a"),
    ],
)
def test_what_points_at_the_worker_points_here(location: bytes, url: str, expected: bytes) -> None:
    raw = [(b"Location", location), (b"X-A", b"http://w:1/x"), (b"Content-Location", location)]
    head = read_answer_head(raw, 307)
    assert head.has_location
    assert without_base(head.relayed, url) == [
        (b"location", expected),
        (b"x-a", b"http://w:1/x"),
        (b"content-location", expected),
    ]


def test_bytes_on_the_wire() -> None:
    assert num_bytes([(b"ab", b"c"), (b"d", b"")]) == len(b"ab: c\r\nd: \r\n")
