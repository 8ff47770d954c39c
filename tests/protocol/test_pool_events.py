"""Events of storage pools: which blocks they name, and what is left out with which reason."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEvent,
    SkipReason,
    StoragePool,
    WorkerId,
    WorkerSpec,
    decode_batch,
)
from protocol.fleet import EngineKind
from protocol.storage_pool import PoolName

ENVELOPE = {
    "event_id": 7,
    "timestamp": 1_790_000_000_000,
    "model_name": "org/model",
    "block_size": 16,
    "additional_salt": None,
    "lora_name": None,
    "tenant_id": "default",
    "backend_id": "mooncake-0",
    "medium": "cpu",
    "dp_rank": 0,
}
BLOCK = {
    "group_id": None,
    "object_key": "org/model@tp_rank:0@pcp0@dcp0@pp_rank:0@" + "00" * 24 + "8000000000000003",
    "seq_hashes": [0x8000_0000_0000_0003],
    "connector_block_hash": "00" * 24 + "8000000000000003",
    "tp_rank": 0,
    "pp_rank": 0,
}
TOKENLESS = {"base_block_idx": None, "parent_hash": None, "token_ids": None}
DIGEST = "f0" * 4 + "0123456789abcdef" * 3 + "00" * 4
HASH = 0xF0F0F0F0_01234567


def decode(**fields: object) -> KvEvent | SkipReason:
    batch = decode_batch(msgpack.packb([1_790_000_000_000, [ENVELOPE | fields], 0]))
    return batch.events[0] if batch.events else batch.skipped[0]


def stored(**fields: object) -> KvEvent | SkipReason:
    return decode(**{"event_type": "stored"} | BLOCK | TOKENLESS | fields)


def removed(**fields: object) -> KvEvent | SkipReason:
    return decode(**{"event_type": "removed"} | BLOCK | fields)


def test_a_stored_block() -> None:
    assert stored() == BlockStored([0x8000_0000_0000_0003], None, (), 16, "cpu", model="org/model")
    named = stored(medium="disk", lora_name="a", additional_salt="s", group_id=1, block_size=None)
    assert named == BlockStored(
        [0x8000_0000_0000_0003], None, (), 0, "disk",
        lora_name="a", cache_salt="s", group_idx=1, model="org/model",
    )  # fmt: skip


def test_a_removed_block_and_a_clear() -> None:
    assert removed(medium="disk") == BlockRemoved(
        [0x8000_0000_0000_0003], "disk", model="org/model"
    )
    assert decode(event_type="cleared", medium=None) == AllBlocksCleared(None)


def test_legacy_fields_change_nothing() -> None:
    legacy = {"type": "BlockStored", "block_hashes": [3]}
    assert stored(**legacy) == stored()
    assert removed(type="BlockRemoved", block_hashes=[3]) == removed()
    assert decode(event_type="cleared", type="AllBlocksCleared") == AllBlocksCleared(None)


@pytest.mark.parametrize("shard", ["tp_rank", "pp_rank", "pcp_rank", "dcp_rank", "layer_id"])
def test_the_first_shard_stands_for_a_store_and_any_for_a_removal(shard: str) -> None:
    assert stored(**{shard: 1}) is SkipReason.NOT_A_BLOCK
    assert removed(**{shard: 1}) == removed()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (DIGEST, [HASH]),
        (DIGEST + "_k", [HASH]),
        (DIGEST + "_0_k", [HASH]),
        (DIGEST + "__k", [HASH]),
        (DIGEST + "_0_0_k", [HASH]),
        (DIGEST + "_0_1_k", None),
        (DIGEST + "_1_v", None),
        (DIGEST + "_0_L3_k", None),
        (DIGEST + "_" + "0" * 5_000, [HASH]),
        (DIGEST + "_" + "1" * 5_000, None),
        (DIGEST + "_" * 100_000, [HASH]),
        ("0" * 63, None),
        ("registry/weights", None),
        (None, None),
    ],
)
def test_sglang_names_its_objects_by_digest(key: str | None, expected: list[int] | None) -> None:
    event = stored(object_key=key, seq_hashes=[], connector_block_hash=None)
    if expected is None:
        assert event is SkipReason.NOT_A_BLOCK
    else:
        assert isinstance(event, BlockStored)
        assert event.block_hashes == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"event_type": "moved"}, SkipReason.UNKNOWN_EVENT),
        ({"event_type": None}, SkipReason.UNKNOWN_EVENT),
        ({"event_type": "stored", "seq_hashes": ["x"]}, SkipReason.BAD_FIELD),
        ({"event_type": "stored", "seq_hashes": [-1]}, SkipReason.BAD_FIELD),
        ({"event_type": "stored", "seq_hashes": [1 << 62, True]}, SkipReason.BAD_FIELD),
        ({"event_type": "removed", "seq_hashes": 3}, SkipReason.BAD_FIELD),
        ({"event_type": "removed"}, SkipReason.NOT_A_BLOCK),
    ],
)
def test_what_is_left_out(fields: dict[str, object], reason: SkipReason) -> None:
    assert decode(**fields) is reason


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from([*ENVELOPE, *BLOCK, *TOKENLESS]), json_like),
    st.sampled_from(["stored", "removed", "cleared", "other"]) | json_like,
)
def test_any_fields_give_an_event_or_a_reason(fields: dict[str, object], kind: object) -> None:
    decode(**fields, event_type=kind)


def test_pools_are_told_apart_by_every_field() -> None:
    pool = StoragePool(PoolName("l3"), "mooncake", "10.0.0.1:50051", "m", "tp1", "")
    others = [
        StoragePool(None, "mooncake", "10.0.0.1:50051", "m", "tp1", ""),
        StoragePool(PoolName("l3"), "hf3fs", "10.0.0.1:50051", "m", "tp1", ""),
        StoragePool(PoolName("l3"), "mooncake", "10.0.0.2:50051", "m", "tp1", ""),
        StoragePool(PoolName("l3"), "mooncake", "10.0.0.1:50051", "n", "tp1", ""),
        StoragePool(PoolName("l3"), "mooncake", "10.0.0.1:50051", "m", "tp2", ""),
        StoragePool(PoolName("l3"), "mooncake", "10.0.0.1:50051", "m", "tp1", "x"),
    ]
    assert len({pool.label, *(other.label for other in others)}) == 1 + len(others)
    assert pool.label.startswith("l3-")


@pytest.mark.parametrize(
    ("engine", "told", "expected"),
    [
        (EngineKind.SGLANG, None, 256),
        (EngineKind.SGLANG, 64, 64),
        (EngineKind.UNKNOWN, None, 256),
        (EngineKind.VLLM, None, 0),
    ],
)
def test_fetch_thresholds(engine: EngineKind, told: int | None, expected: int) -> None:
    spec = WorkerSpec(WorkerId("w"), "http://w", "m", engine, prefetch_threshold=told)
    assert spec.fetch_threshold == expected
