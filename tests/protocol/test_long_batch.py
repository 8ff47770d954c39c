"""Payloads read in steps say what they say read in one go."""

from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import (
    AllBlocksCleared,
    BatchScan,
    BlockRemoved,
    BlockStored,
    EventBatch,
    LongEvents,
    SkipReason,
    UndecodablePayloadError,
    decode_batch,
    encode_batch,
)
from protocol.long_batch import MAX_EVENT_BYTES

STORED = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": [1, 2],
    "block_size": 2,
}
REMOVED = ["BlockRemoved", [7], "GPU"]
CLEARED = ["AllBlocksCleared"]


def scanned(payload: bytes, step: int) -> EventBatch | None:
    scan = BatchScan(payload)
    for _ in range(len(payload) + 2):
        if scan.proceed(step):
            return scan.batch
    raise AssertionError("the scan does not end")


def assert_same(payload: bytes, step: int) -> None:
    batch = scanned(payload, step)
    try:
        expected = decode_batch(payload)
    except UndecodablePayloadError:
        assert batch is None
        return
    assert batch is not None
    assert (batch.ts, batch.dp_rank) == (expected.ts, expected.dp_rank)
    assert list(batch.skipped) == list(expected.skipped)
    assert batch.skip_counts == expected.skip_counts
    assert batch.is_whole == expected.is_whole
    assert list(batch.events) == list(expected.events)
    assert list(batch.events) == list(expected.events), "a second walk"
    assert len(batch.events) == len(expected.events)
    clears = [e for e in expected.events if e == AllBlocksCleared()]
    assert getattr(batch.events, "num_clears", len(clears)) == len(clears)


events = st.lists(
    st.sampled_from([STORED, REMOVED, CLEARED, ["AllBlocksCleared", "GPU"], ["Other"], 5, {}, []]),
    max_size=12,
)
numbers = st.floats(allow_nan=False) | st.integers(-5, 5) | st.none() | st.booleans()
batches = (
    st.builds(lambda ts, found, rank: [ts, found, rank], numbers, events | st.none(), numbers)
    | st.builds(lambda ts, found: [ts, found], numbers, events)
    | st.builds(lambda ts, found, more: [ts, found, 1, more], numbers, events, events)
    | st.dictionaries(
        st.sampled_from(["ts", "events", "rank", "dp_rank", "more"]) | st.integers(0, 3),
        numbers | events,
    )
    | st.lists(numbers, max_size=2)
    | numbers
)


@given(batches, st.integers(1, 5))
def test_any_batch_reads_as_in_one_go(batch: Any, step: int) -> None:
    assert_same(msgpack.packb(batch), step)


@given(st.binary(max_size=60), st.integers(1, 3))
@example(b"", 1)
def test_any_bytes_read_as_in_one_go(payload: bytes, step: int) -> None:
    assert_same(payload, step)


@pytest.mark.parametrize(
    "batch",
    [[1.5, [STORED, REMOVED, CLEARED], 3], {"events": [STORED, REMOVED], "ts": 2, "dp_rank": 1}],
)
def test_truncated_or_prolonged(batch: object) -> None:
    payload = msgpack.packb(batch)
    for length in range(len(payload)):
        assert scanned(payload[:length], 1) is None
    assert scanned(payload + b"\x00", 1) is None


def test_events_named_twice() -> None:
    pair = msgpack.packb("events") + msgpack.packb([CLEARED])
    empty = msgpack.packb("events") + msgpack.packb([])
    payload = b"\x83" + msgpack.packb("ts") + msgpack.packb(1.0) + pair + empty
    assert_same(payload, 1)
    assert_same(b"\x83" + msgpack.packb("events") + b"\xc0" + payload[1:-8] + b"", 2)


def test_a_step_looks_at_few_of_long_events() -> None:
    """Each is 100 KB: two reach beyond what is looked at in one go."""
    stores = [BlockStored([i], None, [1 << 20] * 20_000, 20_000, "GPU") for i in range(9)]
    scan = BatchScan(encode_batch(EventBatch(1.0, stores)))
    assert [scan.proceed(64) for _ in range(5)] == [False, False, False, False, True]
    assert scan.batch is not None
    assert list(scan.batch.events) == stores


def test_a_long_batch_is_read_in_steps() -> None:
    stores = [BlockStored([i], i - 1, [i] * 16, 16, "GPU") for i in range(1, 3000)]
    batch = EventBatch(7.0, [*stores, BlockRemoved([1], "GPU"), AllBlocksCleared()], 2)
    payload = encode_batch(batch)
    scan = BatchScan(payload)
    steps = 1
    while not scan.proceed(100):
        assert scan.batch is None
        steps += 1
    assert steps >= 30
    assert scan.batch is not None
    assert list(scan.batch.events) == batch.events
    assert scan.batch.events[0] == stores[0]
    assert scan.batch.events[-2:] == batch.events[-2:]


def raw_batch(*events: bytes) -> bytes:
    """A batch of these events, each packed already."""
    head: bytes = b"\x93" + msgpack.packb(1.0) + b"\xdd" + len(events).to_bytes(4, "big")
    return head + b"".join(events) + b"\xc0"


def test_what_cannot_be_read_is_passed_once() -> None:
    """Between two events of a walk lie few that are none, however many the payload has."""
    nothing, stored = b"\xc0", msgpack.packb(STORED)
    few, many = [nothing] * 64, [nothing] * 100_000
    payload = raw_batch(*many, stored, *few, stored, *many, stored, *many)
    batch = scanned(payload, 1000)
    assert batch is not None
    assert isinstance(batch.events, LongEvents)
    assert batch.events.num_walked == 3 + len(few)
    assert list(batch.events) == [decode_batch(raw_batch(stored)).events[0]] * 3
    assert batch.skip_counts == {SkipReason.NOT_AN_EVENT: 300_064}
    assert batch.skipped[-1] is SkipReason.NOT_AN_EVENT
    assert list(batch.skipped[:2]) == [SkipReason.NOT_AN_EVENT] * 2


def test_an_event_that_takes_too_long_to_read_is_skipped() -> None:
    stored = msgpack.packb(STORED)
    lists = b"\xdd" + MAX_EVENT_BYTES.to_bytes(4, "big") + b"\x90" * MAX_EVENT_BYTES
    batch = scanned(raw_batch(stored, lists, stored), 1)
    assert batch is not None
    assert list(batch.events) == [decode_batch(raw_batch(stored)).events[0]] * 2
    assert isinstance(batch.events, LongEvents)
    assert batch.events.num_walked == 2
    assert batch.skip_counts == {SkipReason.TOO_LONG: 1}
    assert not batch.is_whole


def test_fields_that_take_too_long_to_read_are_passed() -> None:
    long_one = msgpack.packb(bytes(MAX_EVENT_BYTES + 1))
    known = msgpack.packb("ts") + msgpack.packb(1.0) + msgpack.packb("events") + b"\x90"
    assert scanned(b"\x83" + known + msgpack.packb("more") + long_one, 1) is not None
    assert scanned(b"\x83" + known + msgpack.packb("ts") + long_one, 1) is None
