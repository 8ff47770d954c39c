"""Values of events: what a field of each name may hold, and what it is called here.

A reader takes a value as it was unpacked and returns ours, or raises TypeError.
"""

from collections.abc import Callable
from typing import TypeAlias, cast

from protocol.ids import EngineHash

MAX_HASH_BYTES = 256
"""Of an engine hash that is no number."""
MAX_SIZE = 1 << 24
U64 = (1 << 64) - 1
_I64_MIN = -(1 << 63)

Readers: TypeAlias = dict[object, tuple[str, Callable[[object], object]]]
"""Name on the wire → our name, and its reader."""


def normalise_hash(value: object) -> EngineHash:
    """Signed and unsigned forms of the same 64 bits become one unsigned number; bytes stay bytes.

    Raises:
        TypeError: neither a 64-bit integer nor at most 256 bytes; no engine's hash is longer.
    """
    if isinstance(value, bytes) and len(value) <= MAX_HASH_BYTES:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not _I64_MIN <= value <= U64:
        raise TypeError(f"not an engine hash: {type(value).__name__}")
    return value & U64


def _hashes(value: object) -> list[EngineHash]:
    return [normalise_hash(item) for item in _list(value)]


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def read_string(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("not an integer")
    return value


def _count(value: object) -> int:
    number = _int(value)
    if not 0 <= number <= MAX_SIZE:
        raise TypeError("not a block size")
    return number


def _extra_keys(value: object) -> list[list[object] | None]:
    keys = _list(value)
    if any(key is not None and not isinstance(key, list) for key in keys):
        raise TypeError("extra keys are lists or nil")
    return cast("list[list[object] | None]", keys)


STORED_READERS: Readers = {
    "block_hashes": ("block_hashes", _hashes),
    "parent_block_hash": ("parent_hash", normalise_hash),
    "token_ids": ("token_ids", _list),
    "block_size": ("block_size", _count),
    "lora_id": ("lora_id", _int),
    "medium": ("medium", read_string),
    "lora_name": ("lora_name", read_string),
    "cache_salt": ("cache_salt", read_string),
    "session_id": ("session_id", read_string),
    "extra_keys": ("extra_keys", _extra_keys),
    "group_idx": ("group_idx", _int),
    "kv_cache_spec_kind": ("spec_kind", read_string),
    "kv_cache_spec_sliding_window": ("sliding_window", _int),
    "locality": ("locality", read_string),
    "model_name": ("model", read_string),
}
STORED_REQUIRED: frozenset[object] = frozenset(("block_hashes", "token_ids", "block_size"))
REMOVED_READERS: Readers = {
    "block_hashes": ("block_hashes", _hashes),
    "medium": ("medium", read_string),
    "group_idx": ("group_idx", _int),
    "locality": ("locality", read_string),
    "model_name": ("model", read_string),
}
REMOVED_REQUIRED: frozenset[object] = frozenset(("block_hashes",))
