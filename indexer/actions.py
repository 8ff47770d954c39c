"""What a stream machine asks its surroundings to do: values, in the order to be done."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from protocol import EventBatch


class ForgetReason(StrEnum):
    """Why every claim of a rank is dropped."""

    RESTARTED = "restarted"
    WORKER_REMOVED = "worker_removed"


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the batch to the rank's ledger: it is the next one in order."""

    seq: int
    batch: EventBatch
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop every claim of the rank, observed and predicted ones too."""

    reason: ForgetReason


@dataclass(frozen=True, slots=True)
class RequestReplay:
    """Ask the publisher's replay socket for every batch from ``first_seq`` on."""

    first_seq: int


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Batches ``first_seq`` up to ``last_seq`` are lost for good: older claims are doubtful.

    ``last_seq`` is None where the number is not known (an unreadable payload without a number).
    """

    first_seq: int
    last_seq: int | None


StreamAction: TypeAlias = Apply | Forget | RequestReplay | RecordLoss
