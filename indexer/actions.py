"""What a stream machine asks its surroundings to do: values, in the order to be done."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from protocol import EventBatch


class ForgetReason(StrEnum):
    """Why every claim of a rank is dropped.

    RESTARTED: the publisher's process is another one.
    REBUILT: a full replay from number 0 takes the place of claims in doubt.
    WORKER_REMOVED: nobody listens to the rank any more.
    LOAD_FAILED: a dump broke off in the middle of the rank.
    """

    RESTARTED = "restarted"
    REBUILT = "rebuilt"
    WORKER_REMOVED = "worker_removed"
    LOAD_FAILED = "load_failed"


class LossCause(StrEnum):
    """Why batches are lost for good.

    NO_REPLAY: the publisher has no replay socket to ask.
    UNANSWERED: replays were asked for, and failed or took too long.
    TRUNCATED: the publisher no longer has them, or does not send them.
    UNREADABLE: they came, and cannot be decoded.
    """

    NO_REPLAY = "no_replay"
    UNANSWERED = "unanswered"
    TRUNCATED = "truncated"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the batch to the rank's ledger: it is the next one in order."""

    seq: int
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop every claim of the rank, observed and predicted ones too."""

    reason: ForgetReason


@dataclass(frozen=True, slots=True)
class RequestReplay:
    """Ask the publisher's replay socket for every batch from ``first_seq`` on.

    It takes the place of any conversation still open with the same publisher.
    """

    first_seq: int


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Batches ``first_seq`` up to ``last_seq`` are lost for good, or can be read in part only.

    Claims made so far are doubtful. ``last_seq`` is None where nobody knows how many are missing (a
    publisher that stopped answering).
    """

    first_seq: int
    last_seq: int | None
    cause: LossCause


StreamAction: TypeAlias = Apply | Forget | RequestReplay | RecordLoss
