"""Event batches to bytes, as SGLang publishes them: the counterpart of the codec's decoding."""

from collections.abc import Sequence

import msgpack

from protocol.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, KvEvent
from protocol.ids import EngineHash


def encode_batch(batch: EventBatch) -> bytes:
    """Write a batch as SGLang 0.5.23 does: positional batch, tagged maps, absent fields omitted.

    Byte-identical to that release for the events it can publish; fields that it has not follow under
    their names, so that every event is read as it was written. ``skipped`` is not part of a batch.

    Source: SGLang 0.5.23 ``KVEventBatch`` (msgspec; field order and defaults).
    """
    packed: bytes = msgpack.packb(
        [float(batch.ts), [_encode_event(event) for event in batch.events], batch.dp_rank]
    )
    return packed


def _encode_event(event: KvEvent) -> dict[str, object]:
    match event:
        case BlockStored():
            return _encode_stored(event)
        case BlockRemoved():
            fields: dict[str, object] = {
                "type": "BlockRemoved",
                "block_hashes": [_wire_hash(block_hash) for block_hash in event.block_hashes],
            }
            return fields | _present(
                medium=event.medium,
                group_idx=event.group_idx,
                locality=event.locality,
                model_name=event.model,
            )
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"} | _present(medium=event.medium)


def _encode_stored(event: BlockStored) -> dict[str, object]:
    tokens: Sequence[object] = event.token_ids
    if event.is_eagle:
        run = event.token_ids
        tokens = [[run[i], run[i + 1]] for i in range(len(run) - 1)]
    parent = event.parent_hash
    fields: dict[str, object] = {
        "type": "BlockStored",
        "block_hashes": [_wire_hash(block_hash) for block_hash in event.block_hashes],
        "parent_block_hash": None if parent is None else _wire_hash(parent),
        "token_ids": tokens,
        "block_size": event.block_size,
        "lora_id": event.lora_id,
    }
    return fields | _present(
        medium=event.medium,
        cache_salt=event.cache_salt,
        session_id=event.session_id,
        lora_name=event.lora_name,
        extra_keys=event.extra_keys,
        group_idx=event.group_idx,
        kv_cache_spec_kind=event.spec_kind,
        kv_cache_spec_sliding_window=event.sliding_window,
        locality=event.locality,
        model_name=event.model,
    )


def _wire_hash(block_hash: EngineHash) -> EngineHash:
    """SGLang publishes hashes as signed 64-bit numbers."""
    if isinstance(block_hash, int) and block_hash >= 1 << 63:
        return block_hash - (1 << 64)
    return block_hash


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
