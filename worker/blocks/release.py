"""Releases of vLLM that differ in what is on the wire.

    release   events            replay replies   /kv_event_sources
    0.23      arrays            no topic frame   no
    0.25      maps by name      no topic frame   no
    0.32      maps by name      a topic frame    yes

Source: vLLM struct definitions 0.22.1 to 0.26.0 and recordings of 0.32.0.
"""

from enum import StrEnum

import msgpack

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    ReplayEnd,
    ReplayReply,
    replay_frames,
)

_ALWAYS = 8
"""Leading fields of a stored event (its type included) that are written though they are nil."""
_ALWAYS_REMOVED = 3


class VllmRelease(StrEnum):
    """The latest of each kind."""

    V0_23 = "0.23"
    V0_25 = "0.25"
    V0_32 = "0.32"

    @property
    def version(self) -> str:
        """As ``/version`` tells it."""
        return f"{self}.0"

    @property
    def names_sources(self) -> bool:
        """Whether ``/kv_event_sources`` is there."""
        return self is VllmRelease.V0_32

    def write(self, batch: EventBatch) -> bytes:
        """A batch as this release publishes it; byte-identical for the events that a block pool has."""
        form = _array if self is VllmRelease.V0_23 else _map
        events = [form(event) for event in batch.events]
        packed: bytes = msgpack.packb([float(batch.ts), events, batch.dp_rank])
        return packed

    def replay_frames(self, topic: bytes, reply: ReplayReply | ReplayEnd) -> list[bytes]:
        """Frames of a replay reply, as a DEALER receives them."""
        frames = replay_frames(topic, reply)
        return frames if self is VllmRelease.V0_32 else [frames[0], *frames[2:]]


def _map(event: KvEvent) -> dict[str, object]:
    """Fields by name; those behind the ones that are always there are left out where they are nil."""
    fields = _fields(event)
    always = _ALWAYS if isinstance(event, BlockStored) else _ALWAYS_REMOVED
    items = enumerate(fields.items())
    return {name: value for at, (name, value) in items if at < always or value is not None}


def _array(event: KvEvent) -> list[object]:
    """All fields in order, without the ones that this form does not know."""
    return [value for name, value in _fields(event).items() if name != "session_id"]


def _fields(event: KvEvent) -> dict[str, object]:
    match event:
        case BlockStored():
            return {
                "type": "BlockStored",
                "block_hashes": event.block_hashes,
                "parent_block_hash": event.parent_hash,
                "token_ids": event.token_ids,
                "block_size": event.block_size,
                "lora_id": event.lora_id,
                "medium": event.medium,
                "lora_name": event.lora_name,
                "extra_keys": event.extra_keys,
                "group_idx": event.group_idx,
                "kv_cache_spec_kind": event.spec_kind,
                "kv_cache_spec_sliding_window": event.sliding_window,
                "session_id": event.session_id,
            }
        case BlockRemoved():
            return {
                "type": "BlockRemoved",
                "block_hashes": event.block_hashes,
                "medium": event.medium,
                "group_idx": event.group_idx,
            }
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"}
