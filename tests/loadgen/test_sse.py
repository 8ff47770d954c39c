"""Events from bytes, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sse import OversizedEventError, SseParser

CASES: list[tuple[bytes, list[bytes]]] = [
    (b"data: a\n\n", [b"a"]),
    (b"data:a\n\n", [b"a"]),
    (b"data:  a\n\n", [b" a"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    (b"data: a\ndata: b\n\n", [b"a\nb"]),
    (b": keep-alive\n\ndata: a\n\n", [b"a"]),
    (b"event: x\nid: 1\ndata: a\n\n", [b"a"]),
    (b"event: x\n\n", []),
    (b"data: unfinished\n", []),
    (b"data:\n\n", [b""]),
    (b"\n\n\n", []),
]


@pytest.mark.parametrize(("stream", "events"), CASES)
def test_events(stream: bytes, events: list[bytes]) -> None:
    assert SseParser().feed(stream) == events


@given(cuts=st.lists(st.integers(0, 200), max_size=20))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    stream = b"".join(stream for stream, _ in CASES[:7]) + b"data: [DONE]\n\n"
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parser = SseParser()
    events = [event for start, end in pairwise(bounds) for event in parser.feed(stream[start:end])]
    assert events == [event for _, events in CASES[:7] for event in events] + [b"[DONE]"]


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 100, b"data: " + b"x" * 60 + b"\n" + b"y" * 60]
)
def test_an_event_without_end_is_refused(stream: bytes) -> None:
    with pytest.raises(OversizedEventError):
        SseParser(max_event_bytes=100).feed(stream)
