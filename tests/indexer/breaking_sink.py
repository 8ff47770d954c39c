"""A keeper of claims that breaks at some blocks, as one with a bug does."""

from indexer.actions import ForgetReason, LossCause
from indexer.trust import Trust
from protocol import AllBlocksCleared, EngineHash, EventBatch, Rank
from tests.indexer.set_sink import SetSink


class SinkError(Exception):
    """The bug."""


class BreakingSink(SetSink):
    """Raises for a batch that names one of the bad blocks, before anything of it is applied.

    Attributes:
        bad: the blocks.
        dead: workers for which every call raises.
    """

    def __init__(self, *bad: EngineHash) -> None:
        super().__init__()
        self.bad = bad
        self.dead: set[str] = set()

    def apply(self, rank: Rank, batch: EventBatch, now: float, seq: int | None = None) -> None:
        self._live(rank)
        for event in batch.events:
            if not isinstance(event, AllBlocksCleared) and {*event.block_hashes} & {*self.bad}:
                raise SinkError
        super().apply(rank, batch, now, seq)

    def forget(self, rank: Rank, reason: ForgetReason, now: float) -> None:
        self._live(rank)
        super().forget(rank, reason, now)

    def record_loss(self, rank: Rank, now: float, cause: LossCause) -> None:
        self._live(rank)
        super().record_loss(rank, now, cause)

    def set_trust(self, rank: Rank, trust: Trust, now: float) -> None:
        self._live(rank)
        super().set_trust(rank, trust, now)

    def wants_rebuild(self, rank: Rank, now: float) -> bool:
        self._live(rank)
        return super().wants_rebuild(rank, now)

    def _live(self, rank: Rank) -> None:
        if rank.worker in self.dead:
            self.on_change()
            raise SinkError
