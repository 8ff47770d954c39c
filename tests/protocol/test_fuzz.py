"""Anything at all as bytes: events or a counted rejection come out, and nothing else ever does.

Random bytes, random values packed well, and the payloads of real engines with bits flipped, ends cut off, pieces
exchanged, lengths blown up and values nested deeply.
"""

import json
import tracemalloc
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import (
    AllBlocksCleared,
    BadFramesError,
    BatchScan,
    BlockRemoved,
    BlockStored,
    EventBatch,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    UndecodablePayloadError,
    decode_batch,
    parse_live,
    parse_replay,
)
from protocol.events import SkipReason
from tests.conftest import DATA
from tests.recordings import frames_of, json_lines, sglang_scenarios, vllm_recordings

THOROUGH = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MAX_GOLDEN_BYTES = 4_096


@cache
def golden_payloads() -> tuple[bytes, ...]:
    """Payloads of real engines of many releases, each once."""
    found: dict[bytes, None] = {}
    for path in sglang_scenarios(DATA):
        lines = (line["payload_hex"] for line in json_lines(path) if "payload_hex" in line)
        found |= dict.fromkeys(map(bytes.fromhex, lines))
    for path in vllm_recordings(DATA):
        for line in json_lines(path):
            if line.get("kind") == "pub" or "producer" in line:
                found[frames_of(line)[2]] = None
    for release in json.loads((DATA / "sglang" / "wire_by_version.json").read_text()).values():
        found |= {bytes.fromhex(case["hex"]): None for case in release["cases"].values()}
    return tuple(sorted(one for one in found if len(one) <= MAX_GOLDEN_BYTES))


def read(payload: bytes) -> EventBatch | None:
    """What comes out; None for a rejection. Both readers agree."""
    try:
        batch = decode_batch(payload)
    except UndecodablePayloadError:
        batch = None
    if batch is not None:
        assert_batch(batch)
    assert_scan(payload, batch)
    return batch


def assert_batch(batch: EventBatch) -> None:
    """Values of the right kinds, and every event or its reason."""
    assert isinstance(batch.ts, float)
    assert batch.dp_rank is None or batch.dp_rank >= 0
    assert all(isinstance(reason, SkipReason) for reason in batch.skipped)
    for event in batch.events:
        match event:
            case BlockStored():
                assert_stored(event)
            case BlockRemoved():
                assert_hashes(event.block_hashes)
            case AllBlocksCleared():
                assert event.medium is None or isinstance(event.medium, str)


def assert_stored(event: BlockStored) -> None:
    assert_hashes(
        [*event.block_hashes, *(() if event.parent_hash is None else [event.parent_hash])]
    )
    assert all(isinstance(token, int) for token in event.token_ids)
    assert 0 <= event.block_size <= 1 << 24
    if event.token_ids:
        assert len(event.token_ids) >= len(event.block_hashes) * event.block_size


def assert_hashes(hashes: Sequence[int | bytes]) -> None:
    for block_hash in hashes:
        assert isinstance(block_hash, bytes) or 0 <= block_hash < 1 << 64


def assert_scan(payload: bytes, batch: EventBatch | None) -> None:
    """The reader in steps says the same."""
    scan = BatchScan(payload)
    while not scan.proceed(2):
        pass
    scanned = scan.payload().batch
    assert (scanned is None) == (batch is None)
    if scanned is not None and batch is not None:
        same = (str(scanned.ts), scanned.dp_rank, list(scanned.skipped))
        assert same == (str(batch.ts), batch.dp_rank, list(batch.skipped))
        assert [str(event) for event in scanned.events] == [str(event) for event in batch.events]


# Mutations


def flipped(payload: bytes, bits: list[int]) -> bytes:
    """The same bits of a payload are turned over."""
    mutable = bytearray(payload)
    for bit in bits:
        mutable[bit // 8 % len(payload)] ^= 1 << bit % 8
    return bytes(mutable)


def with_length(payload: bytes, at: int, header: bytes) -> bytes:
    """A header that promises much stands where another byte did."""
    at %= len(payload)
    return payload[:at] + header + payload[at + 1 :]


GOLDEN = st.deferred(lambda: st.sampled_from(golden_payloads()))
AT = st.integers(0, 1 << 16)
HEADERS = st.sampled_from(
    [
        b"\xdd\xff\xff\xff\xff",  # arrays, maps, strings, bytes and extensions of 4 GiB
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xdc\xff\xff",
        b"\xde\xff\xff",
        b"\xdd\x00\x0f\xff\xff",
        b"\xd6\xff\x00\x00\x00\x00",  # a time
        b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # no number
        b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
        b"\xc1",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU", "1" * 5_000]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(SCALARS, inner, max_size=4),
    max_leaves=30,
)
FIELD_NAMES = st.sampled_from(
    ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
     "cache_salt", "session_id", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
     "locality", "model_name", "unknown"]
)  # fmt: skip
POOL_FIELD_NAMES = st.sampled_from(
    ["medium", "model_name", "block_size", "seq_hashes", "object_key", "connector_block_hash", "group_id",
     "lora_name", "additional_salt", "tp_rank", "head_or_tp_rank", "pp_rank", "pcp_rank", "dcp_rank", "layer_id",
     "type", "block_hashes", "unknown"]
)  # fmt: skip
OBJECT_KEYS = st.builds(
    lambda digest, parts: "_".join([digest, *parts]),
    st.sampled_from(["0a" * 32, "0a" * 31, "f" * 64]),
    st.lists(st.sampled_from(["", "0", "k", "L3", "7" * 5_000, "0" * 5_000, "²"]), max_size=4),
)
POOL_EVENTS = st.builds(
    lambda kind, key, fields: {"object_key": key} | fields | {"event_type": kind},
    st.sampled_from(["stored", "removed", "cleared"]) | SCALARS,
    OBJECT_KEYS,
    st.dictionaries(POOL_FIELD_NAMES, VALUES, max_size=9),
)


@THOROUGH
@given(st.binary(max_size=200))
def test_any_bytes(payload: bytes) -> None:
    read(payload)


@THOROUGH
@given(VALUES)
def test_any_value(value: Any) -> None:
    read(msgpack.packb(value))


@THOROUGH
@given(
    st.lists(
        st.dictionaries(FIELD_NAMES, VALUES, max_size=9)
        | st.lists(VALUES, max_size=12)
        | POOL_EVENTS,
        max_size=4,
    )
)
def test_any_fields_of_events(events: list[Any]) -> None:
    """A batch that can be read as one, whatever its events are: nothing is rejected as a whole."""
    for raw in events:
        if isinstance(raw, dict):
            raw.setdefault("type", "BlockStored")
    batch = read(msgpack.packb([1.0, events, 0]))
    assert batch is not None
    assert len(batch.events) + len(batch.skipped) == len(events)


@THOROUGH
@given(GOLDEN, st.lists(AT, min_size=1, max_size=8))
def test_flipped_bits(payload: bytes, bits: list[int]) -> None:
    read(flipped(payload, bits))


@THOROUGH
@given(GOLDEN, AT, st.binary(max_size=8))
def test_cut_off_and_gone_on_otherwise(payload: bytes, at: int, rest: bytes) -> None:
    read(payload[: at % len(payload)] + rest)


@THOROUGH
@given(GOLDEN, GOLDEN, AT, AT, AT, AT)
def test_spliced(one: bytes, other: bytes, start: int, end: int, begin: int, stop: int) -> None:
    """A piece of one payload takes the place of a piece of another."""
    start, end = sorted((start % len(one), end % len(one)))
    begin, stop = sorted((begin % len(other), stop % len(other)))
    read(one[:start] + other[begin:stop] + one[end:])


@THOROUGH
@given(GOLDEN, AT, HEADERS)
def test_huge_lengths(payload: bytes, at: int, header: bytes) -> None:
    read(with_length(payload, at, header))


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01", b"\x92\x90"])
@pytest.mark.parametrize("depth", [10, 500, 511, 512, 513, 1_000, 100_000])
@pytest.mark.parametrize("around", [b"", b"\x93\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x91"])
def test_deep_nesting(opening: bytes, depth: int, around: bytes) -> None:
    read(around + opening * depth + b"\xc0")
    read(around + opening * depth)


@pytest.mark.parametrize("depth", [10, 500, 1_000])
@pytest.mark.parametrize("field", ["token_ids", "extra_keys", "lora_id", "cache_salt"])
def test_values_too_deep_to_compare(field: str, depth: int) -> None:
    """A field holds two pairs that meet in a list of lists of lists: it is read, or its event left out."""
    deep = b"\x91" * depth + b"\xc0"
    named = {
        b"type": msgpack.packb("BlockStored"), b"block_hashes": b"\x91\x07", b"parent_block_hash": b"\xc0",
        b"token_ids": b"\x91\x05", b"block_size": b"\x01", field.encode(): b"\x92\x92\x01" + deep + b"\x92" + deep + b"\x02",
    }  # fmt: skip
    packed = b"".join(msgpack.packb(name.decode()) + value for name, value in named.items())
    event = bytes([0x80 + len(named)]) + packed
    payload = b"\x93\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x91" + event + b"\x00"
    batch = decode_batch(payload)
    assert len(batch.events) + len(batch.skipped) == 1
    scan = BatchScan(payload)
    assert scan.proceed(2)
    scanned = scan.payload().batch
    assert scanned is not None
    assert (len(scanned.events), list(scanned.skipped)) == (len(batch.events), batch.skipped)


@pytest.mark.parametrize("header", [b"\xdd", b"\xdf", b"\xdb", b"\xc6"])
def test_what_is_promised_takes_no_memory(header: bytes) -> None:
    """A few bytes that speak of 4 GiB are a few bytes."""
    payload = b"\x93\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x91" + header + b"\xff\xff\xff\xff"
    tracemalloc.start()
    try:
        assert read(payload) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# Frames

FRAMES = st.lists(
    st.binary(max_size=12) | st.sampled_from([b"", b"\xff" * 8, b"\0" * 8, b"kv"]), max_size=6
)


@THOROUGH
@given(FRAMES)
def test_any_frames(frames: list[bytes]) -> None:
    try:
        message = parse_live(frames)
    except BadFramesError:
        pass
    else:
        assert message == LiveMessage(frames[0], message.seq, frames[2])
        assert 0 <= message.seq < 1 << 63
    try:
        reply = parse_replay(frames)
    except BadFramesError:
        return
    assert isinstance(reply, ReplayEnd) or reply == ReplayReply(reply.seq, frames[-1])


def test_the_mutations_start_from_what_engines_publish() -> None:
    payloads = golden_payloads()
    assert len(payloads) > 100
    for payload in payloads:
        batch = read(payload)
        assert batch is not None
        assert not batch.skipped
    assert all(one < other for one, other in pairwise(payloads))
