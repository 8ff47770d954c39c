"""Does a rank publish what it stores for the requests it serves? And does it tell of the same blocks?

A request of which the rank did not hold at least two blocks makes its engine store some, and an event must say
so. A rank that was silent since the first such request owes events; what the events say once they come is
held against the requests (``Parity``).
"""

from indexer.ledger import RankLedger
from indexer.match import RankMatch
from indexer.parity import SETTLE_S, Parity
from indexer.prompt_blocks import PromptBlocks
from indexer.trust import Trust


class OwedEvents:
    """Of one rank.

    Attributes:
        num_batches: batches heard.
        last_batch_at: when the last of them was.
        since: when the first request ended for which events are owed; None where none is.
        num_requests: such requests, since the last batch.
        parity: whether the stores that are heard of are of what was served.
    """

    __slots__ = ("_ledger", "last_batch_at", "num_batches", "num_requests", "parity", "since")

    def __init__(self, ledger: RankLedger) -> None:
        self._ledger = ledger
        self.num_batches = 0
        self.last_batch_at: float | None = None
        self.since: float | None = None
        self.num_requests = 0
        self.parity = Parity(ledger.claims)

    def hear(self, now: float) -> None:
        """A batch came."""
        self.num_batches += 1
        self.last_batch_at = now
        if self.since is not None and now - self.since >= SETTLE_S:
            self.parity.clear()  # events of what was served in the silence may never come
        self.forgive()

    def serve(
        self,
        blocks: PromptBlocks,
        cached_tokens: int | None,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
        *,
        is_cut: bool,
    ) -> None:
        """Note whether the engine owes a store for a request that ended, and whether one was heard.

        One block short of what can be reused owes none: a draft model gives up the last hit.

        Args:
            cached_tokens: that the engine reports as reused; None where it reports nothing.
            is_cut: not all tokens of the prompt are known.
        """
        held = at_decision.matched_blocks
        if cached_tokens is not None:
            held = max(held, -(-cached_tokens // blocks.block_size))
        elif self.num_batches and at_decision.trust is not Trust.EXACT:
            return  # it may hold more than we know of
        if blocks.num_reusable - held < 2:
            return
        if self.last_batch_at is None or self.last_batch_at < decided_at:
            self.num_requests += 1
            if self.since is None:
                self.since = now
        if not is_cut:
            self.parity.served(blocks, held, self._ledger.num_gpu_stored, decided_at, now)

    def is_silent(self, now: float, bound_s: float) -> bool:
        """Whether events have been owed for longer than the bound."""
        return self.since is not None and now - self.since > bound_s

    def forgive(self) -> None:
        """Nothing is owed from here on."""
        self.since, self.num_requests = None, 0

    def check(self) -> None:
        """Verify that what is owed is counted, and the requests that wait to be confirmed."""
        assert (self.since is None) == (self.num_requests == 0), (self.since, self.num_requests)
        self.parity.check()
