"""Where streams deliver to: whoever keeps the claims of all ranks."""

from typing import Protocol

from indexer.actions import ForgetReason, LossCause
from indexer.trust import Trust
from protocol import EventBatch, Rank


class ClaimSink(Protocol):
    """Keeper of claims. ``now`` is monotonic seconds. Calls for ranks it does not know are harmless."""

    def apply(self, rank: Rank, batch: EventBatch, now: float, seq: int | None = None) -> None:
        """The rank's next batch in order, or a part of it.

        Args:
            seq: the batch's number, with its last part.
        """

    def forget(self, rank: Rank, reason: ForgetReason, now: float) -> None:
        """Drop every claim of the rank."""

    def record_loss(self, rank: Rank, now: float, cause: LossCause) -> None:
        """Batches are lost for good, or in part: the rank's claims so far are doubtful."""

    def set_trust(self, rank: Rank, trust: Trust, now: float) -> None:
        """How far the rank's stream can be believed from here on: told when it changes, and after ``forget``."""

    def wants_rebuild(self, rank: Rank, now: float) -> bool:
        """Whether the rank's claims were dropped without any event, so that a replay from 0 would bring them back.

        To be asked again and again; no longer once the rank has been forgotten.
        """

    def shrink(self, rank: Rank, medium: str, max_blocks: int, now: float) -> bool:
        """All that the rank holds on a medium is about to be cleared: drop up to so many blocks of it.

        Returns:
            Whether what is left there is no more than that.
        """
