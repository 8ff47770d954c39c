"""Event batches off the wire: bytes of any engine release to values.

Decoding is by name. A batch and each of its events may be a positional array or a tagged map, in any
mixture; unknown fields are ignored, a missing optional field is None, an event that cannot be read is
skipped with a reason and never takes its neighbours along. Only a payload that is no batch at all
raises.

Positional layouts (element 0 is the type name):

    BlockStored       hashes, parent, tokens, block_size, lora_id, medium, lora_name, extra_keys,
                      group_idx, kv_cache_spec_kind, kv_cache_spec_sliding_window, locality
    BlockRemoved      hashes, medium, group_idx, locality
    AllBlocksCleared  medium
    batch             ts, events, rank

No field is a map, so a map at any place of a positional event, also beyond the known ones, holds fields by
name (SGLang 0.5.18 and 0.5.19 append one with the salt). Behind the medium engines append what they like: from
the first value on that its place cannot hold, the rest are somebody else's fields and are ignored.

Storage pools publish maps of another form (`protocol.pool_events`).
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgpack

from protocol.event_fields import (
    MAX_SIZE,
    REMOVED_READERS,
    REMOVED_REQUIRED,
    STORED_READERS,
    STORED_REQUIRED,
    U64,
    Readers,
    read_string,
)
from protocol.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    SkipReason,
)
from protocol.ids import EngineHash
from protocol.pool_events import POOL_EVENT_MARK, read_pool_event

_NUM_PLAIN = 7  # fields of a plain store, its type included

_STORED_FIELDS = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality",
)  # fmt: skip
_REMOVED_FIELDS = ("block_hashes", "medium", "group_idx", "locality")
_CLEARED_FIELDS = ("medium",)
_POSITIONAL_FIELDS: Mapping[str, tuple[str, ...]] = {
    "BlockStored": _STORED_FIELDS,
    "BlockRemoved": _REMOVED_FIELDS,
    "AllBlocksCleared": _CLEARED_FIELDS,
}
_NUM_SHARED = {"BlockStored": 6, "BlockRemoved": 2, "AllBlocksCleared": 1}
"""Places that all engines agree on; what stands behind them is looked at where an event cannot be read whole."""
BATCH_PLACES = ("ts", "events", "rank")
"""Fields of a positional batch."""

_RANK_NAMES = ("attn_dp_rank", "data_parallel_rank", "dp_rank", "rank")
BATCH_NAMES = frozenset((*BATCH_PLACES, *_RANK_NAMES))
"""Fields of any batch that are read."""

T = TypeVar("T")


class UndecodablePayloadError(ValueError):
    """The payload is no event batch: not msgpack, or not of a batch's shape."""


def decode_batch(payload: bytes) -> EventBatch:
    """Read one published payload.

    O(bytes). Token ids, hashes and strings are bounded by the payload's own length.

    Args:
        payload: the last frame of a live or replayed message.

    Returns:
        The batch; unreadable events are left out and named in ``skipped``.

    Raises:
        UndecodablePayloadError: not msgpack, or no timestamp and event list in it.
    """
    fields = _batch_fields(_unpack(payload))
    ts, events = batch_time(fields), fields.get("events")
    if not isinstance(events, list):
        raise UndecodablePayloadError("no event list in the payload")
    read: list[KvEvent] = []
    skipped: list[SkipReason] = []
    for raw in events:
        try:
            read.append(_event(raw))
        except _SkipError as skip:
            skipped.append(skip.reason)
    return EventBatch(ts, read, batch_rank(fields), skipped)


class _SkipError(Exception):
    def __init__(self, reason: SkipReason) -> None:
        super().__init__(reason)
        self.reason = reason


def _unpack(payload: bytes) -> object:
    try:
        return msgpack.unpackb(payload, strict_map_key=False, unicode_errors="replace")
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise UndecodablePayloadError("not msgpack") from error


def _batch_fields(raw: object) -> Mapping[object, object]:
    if isinstance(raw, dict):
        return raw
    if isinstance(raw, list):
        return dict(zip(BATCH_PLACES, raw, strict=False))
    raise UndecodablePayloadError("neither an array nor a map")


def batch_time(fields: Mapping[object, object]) -> float:
    """Publisher's clock of a batch, by the batch's fields.

    Raises:
        UndecodablePayloadError: there is none.
    """
    ts = fields.get("ts")
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        raise UndecodablePayloadError("no timestamp in the payload")
    return float(ts)


def batch_rank(fields: Mapping[object, object]) -> int | None:
    """The rank that a batch names, under whatever name; None where it names none."""
    for name in _RANK_NAMES:
        rank = fields.get(name)
        if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
            return rank
    return None


def read_event(raw: object) -> KvEvent | SkipReason:
    """Read one event of a batch, as unpacked, or say why it is left out."""
    try:
        return _event(raw)
    except _SkipError as skip:
        return skip.reason


def _event(raw: object) -> KvEvent:
    if isinstance(raw, dict):
        if POOL_EVENT_MARK in raw:
            return _pool_event(raw)
        tag = raw.get("type")
    elif isinstance(raw, list) and raw:
        tag = raw[0]
    else:
        raise _SkipError(SkipReason.NOT_AN_EVENT)
    if not isinstance(tag, str):
        raise _SkipError(SkipReason.NOT_AN_EVENT)
    if isinstance(raw, dict):
        return _tagged(tag, raw)
    try:
        return _tagged(tag, _positional(tag, raw))
    except _SkipError:
        own = _own_values(tag, raw)
        if len(own) == len(raw):
            raise
    return _tagged(tag, _positional(tag, own))


def _tagged(tag: str, fields: Mapping[object, object]) -> KvEvent:
    if tag == "BlockStored":
        return _stored(fields)
    if tag == "BlockRemoved":
        return _removed(fields)
    if tag == "AllBlocksCleared":
        return AllBlocksCleared(_optional(fields, "medium", read_string))
    raise _SkipError(SkipReason.UNKNOWN_EVENT)


def _pool_event(fields: Mapping[object, object]) -> KvEvent:
    event = read_pool_event(fields)
    if isinstance(event, SkipReason):
        raise _SkipError(event)
    return event


def _positional(tag: str, raw: list[object]) -> dict[object, object]:
    """Name the elements of a positional event; maps among them name theirs."""
    names = _POSITIONAL_FIELDS.get(tag, ())
    fields: dict[object, object] = {}
    for place, value in enumerate(raw[1:]):
        if isinstance(value, dict):
            fields.update(value)
        elif place < len(names):
            fields[names[place]] = value
    return fields


def _own_values(tag: str, raw: list[object]) -> list[object]:
    """A positional event without what is somebody else's; the maps behind it stay."""
    for place, name in enumerate(_POSITIONAL_FIELDS.get(tag, ())[: len(raw) - 1]):
        value = raw[place + 1]
        is_shared = place < _NUM_SHARED[tag] or isinstance(value, dict)
        if not is_shared and not _can_hold(name, value):
            return raw[: place + 1] + [one for one in raw[place + 2 :] if isinstance(one, dict)]
    return raw


def _can_hold(name: str, value: object) -> bool:
    """Is it a value that the field may have?"""
    if value is None:
        return True
    try:
        STORED_READERS[name][1](value)
    except TypeError:
        return False
    return True


def _stored(fields: Mapping[object, object]) -> BlockStored:
    plain = _plain_store(fields)
    if plain is not None:
        return plain
    named = _read_fields(fields, STORED_READERS, STORED_REQUIRED)
    named.setdefault("parent_hash", None)
    tokens, is_eagle = _tokens(named["token_ids"])
    num_units = len(tokens) - 1 if is_eagle else len(tokens)
    # A group that keeps some blocks only (sliding window) announces fewer hashes than tokens.
    if num_units and num_units < len(named["block_hashes"]) * named["block_size"]:
        raise _SkipError(SkipReason.TOKEN_COUNT)
    named["token_ids"] = tokens
    return BlockStored(**named, is_eagle=is_eagle)


def _plain_store(fields: Mapping[object, object]) -> BlockStored | None:
    """A store of plain tokens and numbers, and nothing else but a medium: most of what SGLang publishes.

    It reads as it does field by field, in less time; None where it is anything else.
    """
    if len(fields) != _NUM_PLAIN or "lora_id" not in fields or "type" not in fields:
        return None
    get = fields.get
    hashes, tokens, size = get("block_hashes"), get("token_ids"), get("block_size")
    parent, medium = get("parent_block_hash", ""), get("medium")
    if type(hashes) is not list or type(tokens) is not list or type(size) is not int:
        return None
    if type(parent) is not int and parent is not None:
        return None
    if type(medium) is not str or get("lora_id") is not None:
        return None
    if not 0 < size <= MAX_SIZE or len(tokens) != len(hashes) * size:
        return None
    named: list[EngineHash] = []
    for block_hash in hashes:
        if type(block_hash) is not int:
            return None
        named.append(block_hash & U64)
    try:
        array("I", tokens)  # one conversion in C checks them all
    except (TypeError, OverflowError):
        return None
    return BlockStored(named, None if parent is None else parent & U64, tokens, size, medium)


def _removed(fields: Mapping[object, object]) -> BlockRemoved:
    return BlockRemoved(**_read_fields(fields, REMOVED_READERS, REMOVED_REQUIRED))


def _read_fields(
    fields: Mapping[object, object],
    readers: Readers,
    required: frozenset[object],
) -> dict[str, Any]:
    """Values by our names, of the fields that are known and not nil."""
    if not required <= fields.keys():
        raise _SkipError(SkipReason.MISSING_FIELD)
    named: dict[str, Any] = {}
    for wire_name, value in fields.items():
        known = readers.get(wire_name)
        if known is None:
            continue
        if value is None:
            if wire_name in required:
                raise _SkipError(SkipReason.BAD_FIELD)
            continue
        name, read = known
        try:
            named[name] = read(value)
        except TypeError as error:
            raise _SkipError(SkipReason.BAD_FIELD) from error
    return named


def _optional(fields: Mapping[object, object], name: str, read: Callable[[object], T]) -> T | None:
    value = fields.get(name)
    if value is None:
        return None
    try:
        return read(value)
    except TypeError as error:
        raise _SkipError(SkipReason.BAD_FIELD) from error


def _tokens(raw: list[Any]) -> tuple[Sequence[int], bool]:
    """Plain ids as they are, overlapping pairs as the run they cover: (run, are pairs)."""
    if raw and isinstance(raw[0], list):
        return _run_of_pairs(raw), True
    _require_integers(raw)
    return raw, False


def _run_of_pairs(pairs: list[Any]) -> list[int]:
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise _SkipError(SkipReason.BAD_FIELD)
    run = [pairs[0][0], *(pair[1] for pair in pairs)]
    _require_integers(run)  # before any is compared: lists may be nested too deeply for that
    if any(pair[0] != token for pair, token in zip(pairs, run, strict=False)):
        raise _SkipError(SkipReason.BROKEN_PAIRS)
    return run


def _require_integers(values: list[Any]) -> None:
    """One conversion in C checks them all; what does not fit is looked at one by one."""
    try:
        array("I", values)
    except TypeError as error:
        raise _SkipError(SkipReason.BAD_FIELD) from error
    except OverflowError:
        if not all(isinstance(value, int) for value in values):
            raise _SkipError(SkipReason.BAD_FIELD) from None
