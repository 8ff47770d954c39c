"""Events of a storage pool itself, in the form that Mooncake's master publishes.

    {"event_type": "stored" | "removed" | "cleared", "medium": "cpu" | "disk", "seq_hashes": [u64],
     "connector_block_hash": hex, "object_key": text, "model_name": text, "block_size": n, …}

They name blocks by the engines' hashes and carry no tokens, so they mean something only beside the events of
an engine that stored the same blocks. A pool keeps a block as one object a shard. The first shard stands for
all of them when it is stored, and every one of them when it is removed: claims may be too few for a while.

Source: Mooncake ``docs/source/design/kv-event/`` (publisher design, subscriber guide).
"""

import re
from collections.abc import Mapping

from protocol.event_fields import MAX_SIZE, U64
from protocol.events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent, SkipReason
from protocol.ids import EngineHash

POOL_EVENT_MARK = "event_type"
"""The field that tells this form: engines' events name a ``type`` and no such field."""

_SHARDS = ("tp_rank", "head_or_tp_rank", "pp_rank", "pcp_rank", "dcp_rank", "layer_id")
_SGLANG_KEY = re.compile(r"([0-9a-f]{64})((?:_[_a-z0-9]*)?)")


def read_pool_event(fields: Mapping[object, object]) -> KvEvent | SkipReason:
    """Read one event, or say why it is left out."""
    kind = fields.get(POOL_EVENT_MARK)
    if kind == "cleared":
        return AllBlocksCleared(None)
    if kind not in ("stored", "removed"):
        return SkipReason.UNKNOWN_EVENT
    named = _hashes(fields)
    if isinstance(named, SkipReason):
        return named
    hashes, is_first_shard = named
    if not hashes or (kind == "stored" and not is_first_shard):
        return SkipReason.NOT_A_BLOCK
    medium, model, group = (
        _text(fields, "medium"), _text(fields, "model_name"), _number(fields, "group_id"),
    )  # fmt: skip
    if kind == "removed":
        return BlockRemoved(hashes, medium, group, model=model)
    size = _number(fields, "block_size")
    return BlockStored(
        hashes,
        None,
        (),
        size if size is not None and 0 < size <= MAX_SIZE else 0,
        medium,
        lora_name=_text(fields, "lora_name"),
        cache_salt=_text(fields, "additional_salt"),
        group_idx=group,
        model=model,
    )


def _hashes(fields: Mapping[object, object]) -> tuple[list[EngineHash], bool] | SkipReason:
    """The blocks' hashes as their engine publishes them, and whether this is their first shard."""
    raw = fields.get("seq_hashes")
    if raw:
        if not isinstance(raw, list) or not all(_is_u64(one) for one in raw):
            return SkipReason.BAD_FIELD
        return raw, all(_number(fields, name) in (None, 0) for name in _SHARDS)
    key = _text(fields, "object_key")
    found = None if key is None else _SGLANG_KEY.fullmatch(key)
    if found is None:
        return [], False
    # SGLang names objects by digest and ranks, and publishes the digest's first 8 bytes
    ranks = filter(str.isdigit, found[2].split("_"))  # of any length: more than `int` would read
    return [int(found[1][:16], 16)], not any(one.strip("0") for one in ranks)


def _is_u64(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64


def _text(fields: Mapping[object, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def _number(fields: Mapping[object, object], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
