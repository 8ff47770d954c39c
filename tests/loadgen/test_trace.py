"""Reading Mooncake-format traces: good lines, and every way in which a line is bad."""

from pathlib import Path

import orjson
import pytest

from loadgen import (
    ChatRecord,
    LineFault,
    OnBadLine,
    TraceError,
    TraceRecord,
    load_trace,
    read_trace,
)
from loadgen.trace import MAX_LINE_BYTES

GOOD = b'{"timestamp": 3000, "input_length": 1100, "output_length": 20, "hash_ids": [0, 7, 8]}'


def line(**changes: object) -> bytes:
    fields = orjson.loads(GOOD) | changes
    return orjson.dumps({name: value for name, value in fields.items() if value != "absent"})


def test_reads_a_record() -> None:
    trace = read_trace([GOOD])
    assert trace.records == (TraceRecord(3000.0, 1100, 20, (0, 7, 8)),)
    assert trace.skipped == {}


@pytest.mark.parametrize(
    ("changes", "num_blocks"),
    [
        ({"input_length": 1, "hash_ids": [3]}, 1),
        ({"input_length": 512, "hash_ids": [3]}, 1),
        ({"input_length": 513, "hash_ids": [3, 4]}, 2),
        ({"timestamp": 0.5}, 3),
        ({"output_length": 0}, 3),
        ({"another": {"field": 1}}, 3),
    ],
)
def test_accepts(changes: dict[str, object], num_blocks: int) -> None:
    (record,) = read_trace([line(**changes)]).records
    assert isinstance(record, TraceRecord)
    assert len(record.hash_ids) == num_blocks


CHAT = b'{"timestamp": 5, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}'


def test_reads_a_chat() -> None:
    messages = ({"role": "user", "content": "hello"},)
    assert read_trace([CHAT]).records == (ChatRecord(5.0, messages, 9),)
    assert read_trace([CHAT.replace(b', "max_tokens": 9', b"")]).records == (
        ChatRecord(5.0, messages),
    )


BAD = [
    (b"{", LineFault.NOT_JSON, "no valid JSON"),
    (b"[1]", LineFault.NOT_AN_OBJECT, "object"),
    (b"\xff", LineFault.NOT_JSON, "JSON"),
    (line(timestamp="absent"), LineFault.MISSING_FIELD, "timestamp"),
    (line(hash_ids="absent"), LineFault.MISSING_FIELD, "hash_ids"),
    (line(timestamp=-1), LineFault.BAD_FIELD, "timestamp"),
    (line(timestamp=1e300), LineFault.BAD_FIELD, "timestamp"),
    (line(timestamp=1764500000000), LineFault.BAD_FIELD, "timestamp"),
    (line(timestamp="3"), LineFault.BAD_FIELD, "timestamp"),
    (line(input_length=0), LineFault.BAD_FIELD, "input_length"),
    (line(input_length=1.5), LineFault.BAD_FIELD, "input_length"),
    (line(output_length=-1), LineFault.BAD_FIELD, "output_length"),
    (line(hash_ids=[]), LineFault.BAD_FIELD, "hash_ids"),
    (line(hash_ids=[0, 1, "x"]), LineFault.BAD_FIELD, "hash_ids.2"),
    (line(hash_ids=[0, 1, -1]), LineFault.BAD_FIELD, "hash_ids"),
    (line(hash_ids=[0, 1, 1 << 63]), LineFault.BAD_FIELD, "hash_ids"),
    (line(hash_ids=[0, 1]), LineFault.BLOCK_COUNT, "hash_ids"),
    (b'{"timestamp": 5, "messages": []}', LineFault.BAD_FIELD, "messages"),
    (b'{"messages": [{}]}', LineFault.MISSING_FIELD, "timestamp"),
    (b'{"timestamp": 5, "messages": ["hello"]}', LineFault.BAD_FIELD, "messages.0"),
    (CHAT.replace(b"9", b"0"), LineFault.BAD_FIELD, "max_tokens"),
    (b" " * MAX_LINE_BYTES + GOOD, LineFault.TOO_LONG, "longer"),
]


@pytest.mark.parametrize(("bad", "fault", "word"), BAD)
def test_a_bad_line_is_an_error_with_its_number(bad: bytes, fault: LineFault, word: str) -> None:
    with pytest.raises(TraceError, match=f"^line 3: .*{word}") as raised:
        read_trace([GOOD, b"\n", bad])
    assert raised.value.fault is fault
    assert raised.value.line_number == 3


def test_bad_lines_can_be_skipped_and_are_counted() -> None:
    lines = [GOOD, *(bad for bad, _, _ in BAD), GOOD]
    trace = read_trace(lines, on_bad_line=OnBadLine.SKIP)
    assert len(trace.records) == 2
    assert sum(trace.skipped.values()) == len(BAD)
    assert trace.skipped[LineFault.NOT_JSON] == 2


def test_orders_by_time_and_keeps_the_order_of_equal_times() -> None:
    times = [3000, 0, 3000, 1000]
    lines = [line(timestamp=at, output_length=index) for index, at in enumerate(times)]
    records = read_trace(lines).records
    assert [getattr(record, "output_length", None) for record in records] == [1, 3, 0, 2]


def test_stops_at_the_bound_without_looking_further(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(GOOD + b"\n" + GOOD + b"\n{broken")
    assert len(load_trace(path, max_records=2).records) == 2
    with pytest.raises(TraceError, match="line 3"):
        load_trace(path)


def test_another_block_size() -> None:
    (record,) = read_trace([line(input_length=33, hash_ids=[1, 2, 3])], block_size=16).records
    assert record == TraceRecord(3000.0, 33, 20, (1, 2, 3))
