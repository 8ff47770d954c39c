"""The id at an answer's beginning, however it is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import WorkerId
from router.answer_id import START_BYTES, AnswerStart, NamingTail
from router.made_ids import MAX_ID_BYTES, Lost, MadeIds


def found(body: bytes, *, is_stream: bool, size: int = 1 << 20) -> str | None:
    start = AnswerStart(is_stream=is_stream)
    for at in range(0, len(body), size):
        start.feed(body[at : at + size])
    return start.found


def event(data: object, name: str = "response.created") -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(data).encode())


LONG = "i" * MAX_ID_BYTES
WHOLE = {
    "first": (b'{"id":"resp_1","object":"response"}', "resp_1"),
    "spaced": (b' {\n "id" :\t"resp_1" }', "resp_1"),
    "later": (b'{"object":"response","created_at":1,"id":"resp_1"}', "resp_1"),
    "behind another's": (b'{"output":[{"id":"msg_1"}],"text":{"id":"t"},"id":"resp_1"}', "resp_1"),
    "behind one in a text": (b'{"text":"\\"id\\":\\"msg_1\\"","id":"resp_1"}', "resp_1"),
    "behind brackets in a text": (b'{"text":"}]{[\\\\","id":"resp_1"}', "resp_1"),
    "a value that reads id": (b'{"kind":"id","x":"no","id":"resp_1"}', "resp_1"),
    "as long as may be": (b'{"id":"%s"}' % LONG.encode(), LONG),
    "too long": (b'{"id":"%s1"}' % LONG.encode(), None),
    "escaped": (b'{"id":"a\\u0062"}', None),
    "beyond ASCII": ('{"id":"é"}'.encode(), None),
    "empty": (b'{"id":""}', None),
    "a number": (b'{"id":5,"object":"x"}', None),
    "none": (b'{"error":{"message":"no"}}', None),
    "of what follows the body": (b'{}{"id":"resp_1"}', None),
    "in a list": (b'[{"id":"resp_1"}]', None),
    "nothing else": (b' "session_1"', "session_1"),
    "nothing else, and no id": (b'""', None),
    "no JSON": (b"resp_1", None),
    "nothing": (b"", None),
}
STREAMS = {
    "vLLM": (event({"response": {"id": "resp_1"}, "sequence_number": 0, "type": "r"}), "resp_1"),
    "type first": (
        event({"type": "response.created", "response": {"object": "r", "id": "resp_1"}}),
        "resp_1",
    ),
    "behind a ping": (
        b": alive\n\n" + event({"type": "ping"}, "ping") + event({"response": {"id": "resp_1"}}),
        "resp_1",
    ),
    "an item's": (event({"item": {"id": "msg_1"}}) + event({"response": {"id": "r"}}), "r"),
    "in a comment": (b': {"id":"no"}\n\n' + event({"response": {"id": "r"}}), "r"),
    "CRLF": (event({"response": {"id": "r"}}).replace(b"\n", b"\r\n"), "r"),
    "done": (b"data: [DONE]\n\n", None),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(("body", "expected"), WHOLE.values(), ids=WHOLE.keys())
def test_whole_answers(body: bytes, expected: str | None, size: int) -> None:
    assert found(body, is_stream=False, size=size) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(("body", "expected"), STREAMS.values(), ids=STREAMS.keys())
def test_streams(body: bytes, expected: str | None, size: int) -> None:
    assert found(body, is_stream=True, size=size) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("id"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("id"), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text().filter(lambda key: key not in ("id", "response")), JSON))
def test_whatever_stands_before_it(before: dict[str, object]) -> None:
    body = json.dumps(before | {"id": "resp_1"}).encode()
    expected = "resp_1" if len(body) < START_BYTES else None
    assert found(body, is_stream=False, size=5) == expected
    assert found(b"data: " + body + b"\n\n", is_stream=True, size=5) == expected


@given(st.binary(max_size=200), st.booleans())
def test_whatever_comes_nothing_breaks(body: bytes, is_stream: bool) -> None:
    assert found(body, is_stream=is_stream, size=3) == found(body, is_stream=is_stream)


def test_no_more_than_the_beginning_is_looked_at() -> None:
    for before, expected in ((START_BYTES - 40, "r"), (START_BYTES, None)):
        body = b'{"x":"%s","id":"r"}' % (b"x" * before)
        assert found(body, is_stream=False, size=100) == expected
        assert found(b"data: " + body, is_stream=True, size=100) == expected


def test_the_table_learns_it_as_soon_as_it_has_come() -> None:
    made, worker = MadeIds(), WorkerId("w")
    tail = NamingTail(made, worker, lambda: 5.0, is_stream=True)
    first = event({"response": {"id": "resp_1"}})
    tail.append(first[:30])
    assert made.maker("resp_1", 6.0) is None
    tail.append(first[30:])
    assert made.maker("resp_1", 6.0) == worker
    tail.append(event({"response": {"id": "resp_2"}}))
    assert made.maker("resp_2", 6.0) is None
    assert tail.last_bytes().endswith(b"\n\n")
    assert made.lost[Lost.UNREADABLE] == 0
    other = NamingTail(made, worker, lambda: 5.0, is_stream=False)
    other.append(b"{}")
    assert made.lost[Lost.UNREADABLE] == 1
