"""What two processes must agree on: ids, tiers, events, wire codec, frames, block keys, rates."""

from protocol.codec import UndecodablePayloadError, decode_batch
from protocol.encoding import encode_batch
from protocol.engine_model import DEFAULT_ENGINE_MODEL, EngineModel
from protocol.event_fields import normalise_hash
from protocol.events import (
    HARMLESS_SKIPS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    SkipReason,
)
from protocol.fleet import EngineKind, EventSource, WorkerSpec
from protocol.frames import (
    BadFramesError,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    live_frames,
    parse_live,
    parse_replay,
    parse_replay_request,
    replay_frames,
    replay_request,
)
from protocol.ids import BlockKey, EngineHash, Rank, TokenBytes, WorkerId
from protocol.keys import (
    KeySpace,
    TokenRangeError,
    block_keys,
    local_hash,
    num_tokens,
    pack_tokens,
)
from protocol.long_batch import BatchScan, LongEvents, ScannedPayload
from protocol.storage_pool import (
    DEFAULT_PREFETCH_THRESHOLD,
    PoolName,
    StoragePool,
    StorageUse,
    pool_key,
    pool_source,
)
from protocol.tiers import Tier, tier_of

__all__ = [
    "DEFAULT_ENGINE_MODEL",
    "DEFAULT_PREFETCH_THRESHOLD",
    "HARMLESS_SKIPS",
    "AllBlocksCleared",
    "BadFramesError",
    "BatchScan",
    "BlockKey",
    "BlockRemoved",
    "BlockStored",
    "EngineHash",
    "EngineKind",
    "EngineModel",
    "EventBatch",
    "EventSource",
    "KeySpace",
    "KvEvent",
    "LiveMessage",
    "LongEvents",
    "PoolName",
    "Rank",
    "ReplayEnd",
    "ReplayReply",
    "ScannedPayload",
    "SkipReason",
    "StoragePool",
    "StorageUse",
    "Tier",
    "TokenBytes",
    "TokenRangeError",
    "UndecodablePayloadError",
    "WorkerId",
    "WorkerSpec",
    "block_keys",
    "decode_batch",
    "encode_batch",
    "live_frames",
    "local_hash",
    "normalise_hash",
    "num_tokens",
    "pack_tokens",
    "parse_live",
    "parse_replay",
    "parse_replay_request",
    "pool_key",
    "pool_source",
    "replay_frames",
    "replay_request",
    "tier_of",
]
