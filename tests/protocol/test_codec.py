import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    SkipReason,
    UndecodablePayloadError,
    decode_batch,
    encode_batch,
    normalise_hash,
)

NEGATIVE = -3488128144981237669
UNSIGNED = NEGATIVE & (1 << 64) - 1
STORE_FIELDS = {
    "block_hashes": [NEGATIVE],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 4,
    "lora_id": None,
}
STORE_MAP = {"type": "BlockStored", **STORE_FIELDS}
STORE_ARRAY = ["BlockStored", *STORE_FIELDS.values()]
STORE = BlockStored([UNSIGNED], None, [1, 2, 3, 4], 4)


def decode(batch: object) -> EventBatch:
    return decode_batch(msgpack.packb(batch))


def event_of(raw: object) -> KvEvent:
    batch = decode([1.0, [raw]])
    assert batch.skipped == []
    (event,) = batch.events
    return event


@pytest.mark.parametrize("rank", [0, 5, None])
@pytest.mark.parametrize("event", [STORE_MAP, STORE_ARRAY])
@pytest.mark.parametrize("rank_name", ["attn_dp_rank", "data_parallel_rank"])
def test_arrays_and_maps_at_both_levels_say_the_same(
    event: object, rank: int | None, rank_name: str
) -> None:
    expected = EventBatch(1.0, [STORE], rank, [])
    assert decode([1.0, [event], rank]) == expected
    assert decode({"ts": 1.0, "events": [event], rank_name: rank}) == expected
    assert decode([1.0, [event], rank, "a later field"]) == expected


def test_rank_may_be_absent_at_both_levels() -> None:
    assert decode([1.0, []]).dp_rank is None
    assert decode({"ts": 1, "events": []}).dp_rank is None


@pytest.mark.parametrize("num_fields", [5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
def test_positional_stores_of_every_length(num_fields: int) -> None:
    optional = ["GPU", "adapter", [None], 3, "full_attention", 128, "LOCAL", "later", {"x": 1}]
    event = event_of([*STORE_ARRAY, *optional][: num_fields + 1])
    assert isinstance(event, BlockStored)
    assert event.medium == ("GPU" if num_fields > 5 else None)
    assert event.lora_name == ("adapter" if num_fields > 6 else None)
    assert event.group_idx == (3 if num_fields > 8 else None)
    assert event.sliding_window == (128 if num_fields > 10 else None)


FOREIGN = [7, True, 1.5, b"raw", [[1], 2], "word"]


@pytest.mark.parametrize("num_known", range(1, 8))
@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_a_place_cannot_hold_is_somebody_elses_field(num_known: int, foreign: object) -> None:
    """It is ignored with all that follows, and takes neither the store nor what comes before it along."""
    optional = ["GPU", "adapter", [None], 3, "full_attention", 128, "LOCAL"]
    event = event_of([*STORE_ARRAY, *optional[:num_known], foreign, *FOREIGN])
    assert isinstance(event, BlockStored)
    assert (event.block_hashes, list(event.token_ids)) == ([UNSIGNED], [1, 2, 3, 4])
    known = [event.medium, event.lora_name, event.extra_keys, event.group_idx, event.spec_kind]
    assert known[:num_known] == optional[: min(num_known, 5)]


@pytest.mark.parametrize(
    "extras", [["word", 7], [1.5, "word"], [True, None], [[1], {"a": 1}], [b"x"]]
)
def test_a_removal_with_unknown_extras_removes(extras: list[object]) -> None:
    assert event_of(["BlockRemoved", [1], "CPU", *extras]) == BlockRemoved([1], "CPU")


@pytest.mark.parametrize("num_between", range(9))
def test_a_map_at_any_place_of_a_positional_store_is_merged_by_name(num_between: int) -> None:
    """Among the known places, right after them, and beyond."""
    event = event_of([*STORE_ARRAY, "GPU", *[None] * num_between, {"cache_salt": "tenant"}])
    assert isinstance(event, BlockStored)
    assert (event.cache_salt, event.medium, event.lora_name) == ("tenant", "GPU", None)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (["BlockRemoved", [1], {"locality": "REMOTE"}, 2], BlockRemoved([1], None, 2, "REMOTE")),
        (["BlockRemoved", [1], "CPU", 2, None, 0, {"a": 1}], BlockRemoved([1], "CPU", 2)),
        (["AllBlocksCleared", {"medium": "GPU"}], AllBlocksCleared("GPU")),
        (["AllBlocksCleared", "GPU", {"later": 1}], AllBlocksCleared("GPU")),
        (["AllBlocksCleared", None], AllBlocksCleared()),
    ],
)
def test_maps_in_other_positional_events(raw: object, expected: KvEvent) -> None:
    assert event_of(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"type": "BlockRemoved", "block_hashes": [1]}, BlockRemoved([1])),
        (["BlockRemoved", [1]], BlockRemoved([1])),
        (["BlockRemoved", [1], "CPU_PINNED"], BlockRemoved([1], "CPU_PINNED")),
        (["BlockRemoved", [1], "CPU", 2, "REMOTE", 8, 9], BlockRemoved([1], "CPU", 2, "REMOTE")),
        (["BlockRemoved", [NEGATIVE, b"\x01" * 32]], BlockRemoved([UNSIGNED, b"\x01" * 32])),
        (["AllBlocksCleared"], AllBlocksCleared()),
        ({"type": "AllBlocksCleared", "unknown": 1}, AllBlocksCleared()),
        ({"type": "AllBlocksCleared", "medium": "GPU"}, AllBlocksCleared("GPU")),
        ({**STORE_MAP, "unknown": [1, {"a": 2}]}, STORE),
    ],
)
def test_missing_and_unknown_fields(raw: object, expected: KvEvent) -> None:
    assert event_of(raw) == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"type": "BlockCompressed", "a": 1}, SkipReason.UNKNOWN_EVENT),
        (["BlockCompressed", 1, 2], SkipReason.UNKNOWN_EVENT),
        ([], SkipReason.NOT_AN_EVENT),
        ("BlockStored", SkipReason.NOT_AN_EVENT),
        (None, SkipReason.NOT_AN_EVENT),
        ({"type": 7}, SkipReason.NOT_AN_EVENT),
        ({}, SkipReason.NOT_AN_EVENT),
        ([["BlockStored"]], SkipReason.NOT_AN_EVENT),
        (["BlockStored"], SkipReason.MISSING_FIELD),
        ({"type": "BlockRemoved"}, SkipReason.MISSING_FIELD),
        (["BlockStored", [1]], SkipReason.MISSING_FIELD),
        ({**STORE_MAP, "token_ids": None}, SkipReason.BAD_FIELD),
        (
            {"type": "BlockStored", "block_hashes": [1], "token_ids": [1, 2]},
            SkipReason.MISSING_FIELD,
        ),
        ({**STORE_MAP, "block_hashes": 7}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "block_hashes": ["x"]}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "block_hashes": [True]}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "parent_block_hash": 1.5}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "block_size": -1}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "block_size": 1 << 40}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "token_ids": ["a"]}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "token_ids": [1, 2, 3]}, SkipReason.TOKEN_COUNT),
        ({**STORE_MAP, "medium": 3}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "extra_keys": "a"}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "extra_keys": [1]}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "token_ids": [[1, 2], [3, 4]]}, SkipReason.BROKEN_PAIRS),
        ({**STORE_MAP, "token_ids": [[1, 2, 3]]}, SkipReason.BAD_FIELD),
        ({**STORE_MAP, "token_ids": [[1, 2], 2]}, SkipReason.BAD_FIELD),
    ],
)
def test_an_unreadable_event_is_skipped_alone(raw: object, reason: SkipReason) -> None:
    batch = decode([1.0, [STORE_MAP, raw, ["BlockRemoved", [1]]]])
    assert batch.events == [STORE, BlockRemoved([1])]
    assert batch.skipped == [reason]


@pytest.mark.parametrize("left_out", [(), ("parent_block_hash",), ("lora_id", "parent_block_hash")])
def test_a_field_that_is_left_out_is_nil(left_out: tuple[str, ...]) -> None:
    fields = {name: value for name, value in STORE_MAP.items() if name not in left_out}
    assert decode([1.0, [fields]]).events == [STORE]


def test_pairs_become_the_run_that_they_cover() -> None:
    event = event_of({**STORE_MAP, "token_ids": [[1, 2], [2, 3], [3, 4], [4, 5]]})
    assert isinstance(event, BlockStored)
    assert event.token_ids == [1, 2, 3, 4, 5]
    assert event.is_eagle


def test_offload_placeholders_and_sparse_groups_are_no_faults() -> None:
    assert event_of({**STORE_MAP, "token_ids": [], "block_size": 0}) is not None
    assert event_of({**STORE_MAP, "token_ids": list(range(64))}) is not None
    assert event_of({**STORE_MAP, "block_hashes": []}) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x93",
        msgpack.packb(7),
        msgpack.packb("x"),
        msgpack.packb([]),
        msgpack.packb([1.0]),
        msgpack.packb([None, []]),
        msgpack.packb([True, []]),
        msgpack.packb([1.0, {}]),
        msgpack.packb({"ts": 1.0}),
        msgpack.packb([1.0, []]) + b"\x00",
        b"\x91" * 2000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ],
)
def test_a_payload_that_is_no_batch_raises(payload: bytes) -> None:
    with pytest.raises(UndecodablePayloadError):
        decode_batch(payload)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_batch_or_the_one_error(payload: bytes) -> None:
    with contextlib.suppress(UndecodablePayloadError):
        decode_batch(payload)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text()
    | st.binary() | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU"]),
    lambda inner: st.lists(inner, max_size=8)
    | st.dictionaries(st.sampled_from([*STORE_MAP, "medium", "ts", "events"]) | st.text(), inner),
    max_leaves=30,
)  # fmt: skip


@given(st.lists(json_like, max_size=5))
def test_any_events_are_read_or_skipped_with_a_reason(raw: list[object]) -> None:
    batch = decode([1.0, raw])
    assert len(batch.events) + len(batch.skipped) == len(raw)


@given(st.binary(max_size=40), st.integers(0, 300))
def test_every_truncation_is_the_one_error(noise: bytes, length: int) -> None:
    payload = encode_batch(EventBatch(1.0, [STORE, BlockRemoved([1], "GPU")], 0))
    cut = payload[: min(length, len(payload) - 1)]
    with pytest.raises(UndecodablePayloadError):
        decode_batch(cut)
    with contextlib.suppress(UndecodablePayloadError):
        decode_batch(cut + noise)


names = st.none() | st.text(max_size=5)
groups = st.none() | st.integers(0, 7)
hashes = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=4)


@st.composite
def stores(draw: st.DrawFn) -> BlockStored:
    block_hashes, block_size = draw(hashes), draw(st.integers(1, 4))
    is_eagle = draw(st.booleans())
    num_ids = len(block_hashes) * block_size + is_eagle
    ids = draw(st.lists(st.integers(0, 1 << 33), min_size=num_ids, max_size=num_ids))
    return BlockStored(
        block_hashes,
        draw(st.none() | st.integers(0, (1 << 64) - 1)),
        ids,
        block_size,
        medium=draw(names),
        lora_id=draw(st.none() | st.integers(0, 9)),
        lora_name=draw(names),
        cache_salt=draw(names),
        session_id=draw(names),
        extra_keys=draw(st.none() | st.lists(st.none() | st.lists(names, max_size=2), max_size=3)),
        group_idx=draw(groups),
        spec_kind=draw(names),
        sliding_window=draw(st.none() | st.integers(1, 4_096)),
        locality=draw(names),
        is_eagle=is_eagle,
    )


events = st.one_of(
    stores(),
    st.builds(BlockRemoved, hashes, names, groups, names),
    st.builds(AllBlocksCleared, names),
)


@given(st.lists(events, max_size=5), st.none() | st.integers(0, 7))
def test_decoding_is_the_inverse_of_encoding(batch: list[KvEvent], rank: int | None) -> None:
    expected = EventBatch(2.5, batch, rank, [])
    assert decode_batch(encode_batch(expected)) == expected


@pytest.mark.parametrize("value", [True, 1.5, "1", None, 1 << 64, -(1 << 63) - 1, b"x" * 257])
def test_what_is_no_engine_hash(value: object) -> None:
    with pytest.raises(TypeError):
        normalise_hash(value)


@given(
    st.lists(st.integers(-(1 << 63), (1 << 64) - 1) | st.binary(max_size=2) | st.booleans(), max_size=3),
    st.none() | st.integers(-(1 << 63), (1 << 64) - 1) | st.booleans(),
    st.lists(st.integers(-1, 1 << 33) | st.floats(0, 1) | st.booleans(), max_size=7),
    st.integers(-1, 3) | st.just(1 << 25),
    st.none() | st.just("GPU") | st.just(3),
    st.none() | st.integers(0, 2),
)  # fmt: skip
def test_the_shortest_form_of_a_store_reads_as_any_other(
    hashes: list[object],
    parent: object,
    tokens: list[object],
    size: int,
    medium: object,
    lora: object,
) -> None:
    raw = {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
        "token_ids": tokens, "block_size": size, "lora_id": lora, "medium": medium,
    }  # fmt: skip
    plain, other = decode([1.0, [raw]]), decode([1.0, [{**raw, "more": 1}]])
    assert plain == other
