"""What was heard as JSON objects, one a line, for programs.

Hashes are 16 hex digits (numbers of 64 bits are too large for many readers of JSON). Token ids are left out
unless they are asked for; a salt and a session are secrets of a tenant: only that there is one is told.
"""

from collections.abc import Iterator

from kvroute.tap.heard import Batch, Note
from kvroute.tap.line import full_hash
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from router.plain_text import writable


def event_records(
    batch: Batch, worker: str, *, shows_tokens: bool = False
) -> Iterator[dict[str, object]]:
    """An object for each event of a batch, in order."""
    lag_s = batch.lag_s
    head: dict[str, object] = {
        "kind": "event",
        "time": batch.batch.ts,
        "lag_s": None if lag_s is None else round(lag_s, 6),
        "worker": worker,
        "dp_rank": batch.dp_rank,
        "seq": batch.message.seq,
        "is_replayed": batch.is_replayed,
    }
    for event in batch.batch.events:
        yield head | _event(event, shows_tokens=shows_tokens)


def note_record(note: Note, worker: str) -> dict[str, object]:
    """A note; its kind is in ``kind``."""
    return {
        "kind": note.kind,
        "time": note.at,
        "worker": worker,
        "dp_rank": note.dp_rank,
        "is_fault": note.is_fault,
        "text": writable(note.text),
        "missing": note.missing,
    }


def _event(event: KvEvent, *, shows_tokens: bool) -> dict[str, object]:
    match event:
        case BlockStored():
            tokens = {"token_ids": list(event.token_ids)} if shows_tokens else {}
            return _stored(event) | tokens
        case BlockRemoved():
            return {
                "event": "removed",
                "medium": _text(event.medium),
                "hashes": [full_hash(one) for one in event.block_hashes],
                "group": event.group_idx,
                "locality": _text(event.locality),
            }
        case AllBlocksCleared():
            return {"event": "cleared", "medium": _text(event.medium)}


def _stored(event: BlockStored) -> dict[str, object]:
    parent = event.parent_hash
    return {
        "event": "stored",
        "medium": _text(event.medium),
        "hashes": [full_hash(one) for one in event.block_hashes],
        "parent": None if parent is None else full_hash(parent),
        "block_size": event.block_size,
        "num_tokens": len(event.token_ids),
        "group": event.group_idx,
        "spec_kind": _text(event.spec_kind),
        "lora_name": _text(event.lora_name),
        "lora_id": event.lora_id,
        "locality": _text(event.locality),
        "is_salted": event.cache_salt is not None,
        "has_extra_keys": any(event.extra_keys or ()),
        "has_session": event.session_id is not None,
        "is_eagle": event.is_eagle,
    }


def _text(text: str | None) -> str | None:
    return None if text is None else writable(text)
