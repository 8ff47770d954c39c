"""The naive keeper of claims: a set of hashes a rank, and what it was told about them."""

from collections import defaultdict
from collections.abc import Callable

from indexer.actions import ForgetReason, LossCause
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    Rank,
)


class SetSink:
    """Claims by rank as sets of engine hashes, whatever the tier.

    Attributes:
        on_change: called after every call.
        causes: of the losses, in order.
        trust: as last told; ``trust_changes`` lists what was told, in order.
        batches: what was applied, in order.
        purged: ranks that a replay from 0 is wanted for; a forget ends it.
        calls: names of all calls, in order.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self.claims: defaultdict[Rank, set[EngineHash]] = defaultdict(set)
        self.trust: dict[Rank, Trust] = {}
        self.trust_changes: list[tuple[Rank, Trust]] = []
        self.losses: defaultdict[Rank, int] = defaultdict(int)
        self.causes: defaultdict[Rank, list[LossCause]] = defaultdict(list)
        self.forgets: list[tuple[Rank, ForgetReason]] = []
        self.batches: list[tuple[Rank, EventBatch]] = []
        self.calls: list[str] = []
        self.purged: set[Rank] = set()

    def apply(self, rank: Rank, batch: EventBatch, now: float, seq: int | None = None) -> None:
        self.calls.append("apply")
        self.batches.append((rank, batch))
        claims = self.claims[rank]
        for event in batch.events:
            match event:
                case BlockStored(block_hashes=hashes):
                    claims.update(hashes)
                case BlockRemoved(block_hashes=hashes):
                    claims.difference_update(hashes)
                case AllBlocksCleared():
                    claims.clear()
        self.on_change()

    def forget(self, rank: Rank, reason: ForgetReason, now: float) -> None:
        self.calls.append("forget")
        self.claims[rank].clear()
        self.purged.discard(rank)
        self.forgets.append((rank, reason))
        self.on_change()

    def record_loss(self, rank: Rank, now: float, cause: LossCause) -> None:
        self.calls.append("record_loss")
        self.losses[rank] += 1
        self.causes[rank].append(cause)
        self.on_change()

    def set_trust(self, rank: Rank, trust: Trust, now: float) -> None:
        self.calls.append("set_trust")
        self.trust[rank] = trust
        self.trust_changes.append((rank, trust))
        self.on_change()

    def wants_rebuild(self, rank: Rank, now: float) -> bool:
        return rank in self.purged

    def shrink(self, rank: Rank, medium: str, max_blocks: int, now: float) -> bool:
        return True
