"""What a tap hears, in order: batches as they were published, and notes of what is wrong between them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from protocol import EventBatch, LiveMessage


class NoteKind(StrEnum):
    """What a note tells; those of ``FAULTS`` mean that something was lost or cannot be read."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    NOT_CONNECTED = "not_connected"
    SILENT = "silent"
    JOINED = "joined"
    GAP = "gap"
    RESTART = "restart"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"
    BAD_FRAMES = "bad_frames"
    SKIPPED_EVENT = "skipped_event"
    REPLAYED = "replayed"
    REPLAY_TRUNCATED = "replay_truncated"
    REPLAY_FAILED = "replay_failed"
    HOLD_FULL = "hold_full"


FAULTS = frozenset(NoteKind) - {
    NoteKind.CONNECTED,
    NoteKind.SILENT,
    NoteKind.JOINED,
    NoteKind.DUPLICATE,
    NoteKind.REPLAYED,
}


@dataclass(frozen=True, slots=True)
class Note:
    """Something other than a batch.

    Attributes:
        at: wall clock, seconds since the epoch.
        dp_rank: whom it is about; None where that is not known.
        missing: first and last missing number, of a gap.
        frames: the message as it came, where it could not be read or was dropped.
    """

    kind: NoteKind
    text: str
    at: float
    dp_rank: int | None = None
    missing: tuple[int, int] | None = None
    frames: tuple[bytes, ...] = ()

    @property
    def is_fault(self) -> bool:
        """Was something lost, or is something wrong?"""
        return self.kind in FAULTS


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch.

    Attributes:
        message: as the PUB socket sends it; of a replayed one as it was sent.
        at: when it was heard; wall clock, seconds since the epoch.
    """

    dp_rank: int
    message: LiveMessage
    batch: EventBatch = field(repr=False)
    at: float
    is_replayed: bool = False

    @property
    def lag_s(self) -> float | None:
        """Publication to hearing, the two machines' clocks included; None for replayed ones, and without a clock."""
        published_at = self.batch.published_at
        return None if self.is_replayed or published_at is None else self.at - published_at


Heard: TypeAlias = Batch | Note
