"""KV cache events as values: what one batch says, whatever dialect it was written in.

Every engine hash is normalised (signed and unsigned forms of the same 64 bits are one number), every
optional field that a dialect lacks is None. Events keep the order in which the engine published them,
for it carries meaning: one batch may remove and store the same block.

Events are values, though not frozen ones: one is made for every block that a fleet publishes, and a
frozen dataclass of this many fields costs three times as much to make.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias, overload

from protocol.ids import EngineHash


@dataclass(slots=True)
class BlockStored:
    """Blocks became readable on one medium, as a chain from parent to last.

    ``token_ids`` holds ``block_size`` ids a block, in order. Engines with overlapping pairs (EAGLE)
    publish one pair a position; they arrive here as the plain run, one id longer, with ``is_eagle``
    set: pairs (1,2),(2,3) are the run 1,2,3. Offload placeholders carry no ids and block size 0. ``model`` is
    named by storage pools alone.
    """

    block_hashes: Sequence[EngineHash]
    parent_hash: EngineHash | None
    token_ids: Sequence[int]
    block_size: int
    medium: str | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    extra_keys: Sequence[Sequence[object] | None] | None = None
    group_idx: int | None = None
    spec_kind: str | None = None
    sliding_window: int | None = None
    locality: str | None = None
    is_eagle: bool = False
    model: str | None = None


@dataclass(slots=True)
class BlockRemoved:
    """Blocks left one medium; nothing is said about their children or their other copies."""

    block_hashes: Sequence[EngineHash]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    model: str | None = None


@dataclass(slots=True)
class AllBlocksCleared:
    """Everything is gone: on every tier of the rank, or on ``medium`` alone where one is named."""

    medium: str | None = None


KvEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class SkipReason(StrEnum):
    """Why one event of a readable batch was left out."""

    UNKNOWN_EVENT = "unknown_event"
    NOT_AN_EVENT = "not_an_event"
    BAD_FIELD = "bad_field"
    MISSING_FIELD = "missing_field"
    TOKEN_COUNT = "token_count"
    BROKEN_PAIRS = "broken_pairs"
    TOO_LONG = "too_long"  # to be read in one go
    NOT_A_BLOCK = (
        "not_a_block"  # an object of a storage pool: another shard of a block, or a foreign one
    )


HARMLESS_SKIPS = frozenset((SkipReason.UNKNOWN_EVENT, SkipReason.NOT_A_BLOCK))
"""Events that would have changed no claim."""


class SkippedEvents(Sequence[SkipReason]):
    """Reasons in the order of their events, a byte each: a payload may hold millions of events that are none."""

    __slots__ = ("_codes",)
    _REASONS: ClassVar = tuple(SkipReason)
    _CODES: ClassVar = {reason: code for code, reason in enumerate(SkipReason)}

    def __init__(self) -> None:
        self._codes = bytearray()

    def add(self, reason: SkipReason) -> None:
        """One more; O(1)."""
        self._codes.append(self._CODES[reason])

    def clear(self) -> None:
        """None at all."""
        self._codes.clear()

    def counts(self) -> Mapping[SkipReason, int]:
        """Their number by reason; O(events), in C."""
        counts = {reason: self._codes.count(code) for reason, code in self._CODES.items()}
        return {reason: count for reason, count in counts.items() if count}

    def __len__(self) -> int:
        return len(self._codes)

    @overload
    def __getitem__(self, index: int) -> SkipReason: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SkipReason]: ...
    def __getitem__(self, index: int | slice) -> SkipReason | Sequence[SkipReason]:
        if isinstance(index, slice):
            return [self._REASONS[code] for code in self._codes[index]]
        return self._REASONS[self._codes[index]]


@dataclass(frozen=True, slots=True)
class EventBatch:
    """One published batch.

    Attributes:
        ts: publisher's wall clock, seconds since the epoch, as it stands on the wire.
        events: in the order of publication, without the skipped ones.
        dp_rank: the rank named in the batch; None where none is.
        skipped: one reason per event that could not be read, of the closed set ``SkipReason``.
    """

    ts: float
    events: Sequence[KvEvent]
    dp_rank: int | None = None
    skipped: Sequence[SkipReason] = ()

    @property
    def skip_counts(self) -> Mapping[SkipReason, int]:
        """How many events were left out, by reason. O(skipped), in C."""
        if isinstance(self.skipped, SkippedEvents):
            return self.skipped.counts()
        return Counter(self.skipped)

    @property
    def is_whole(self) -> bool:
        """Whether every event was read that might have changed a claim."""
        return HARMLESS_SKIPS.issuperset(self.skip_counts)

    @property
    def published_at(self) -> float | None:
        """Publisher's wall clock; None where what it says is no time (NaN, infinity)."""
        return self.ts if math.isfinite(self.ts) else None
