"""One rank's bits in the block index: announced tiers, observed, predicted, and what is doubtful.

The ledger says which blocks an event names; here they become bits. Events outrank evidence: a block that
is stored on GPU is no longer observed or predicted but announced, and one that is removed from GPU is not
observed either. A prediction outlives a removal, for it speaks of what is to come.

Two engine hashes may name the same block (namespaces that the engine does not tell apart, or several
cache groups); the bit then stays until the last of them is removed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from indexer.aged_marks import AgedMarks
from indexer.block_index import BlockIndex, Ref
from indexer.departures import Departures
from indexer.doubts import Doubts
from indexer.limits import IndexLimits
from indexer.mask_runs import BitRun
from indexer.prompt_blocks import PromptBlocks
from indexer.retired_slots import Table
from indexer.slot_bits import GPU, OBSERVED, PREDICTED
from protocol import EngineHash, Tier

_DOUBTED_AT_ONCE = 16_384


class StoreWitness(Protocol):
    """Who else wants to know what the rank stores, and may hold it: a storage pool."""

    def stored(self, tier: Tier, hashes: Sequence[EngineHash], refs: Sequence[Ref]) -> None:
        """Events stored these hashes of these blocks on the tier."""

    def settle(self, now: float) -> None:
        """This is the time of all that was told so far."""

    def holds(self, ref: Ref) -> bool:
        """Whether the rank can fetch the block from there."""


class HashNames(Protocol):
    """Who else knows which blocks hashes name."""

    def get(self, block_hash: EngineHash, /) -> Ref | None:
        """The block; None where it is not known."""


class RankClaims:
    """The bits of one slot.

    Attributes:
        doubtful: announced claims by tier that are older than an unrepaired loss.
        departures: by tier, which blocks events removed, and when.
        duplicates: by tier, stores of what was held.
        witness: is told of every store whose blocks are known.
        other_names: is asked for hashes that the rank's own events do not name.
    """

    def __init__(self, index: BlockIndex, limits: IndexLimits) -> None:
        self.index = index
        self.slot = index.take_slot()
        self.observed = AgedMarks(index, self.slot, OBSERVED, limits.observed)
        self.predicted = AgedMarks(index, self.slot, PREDICTED, limits.predicted)
        self.doubtful = {tier: Doubts() for tier in Tier}
        self.departures = {tier: Departures(limits.departures, index.share) for tier in Tier}
        self.duplicates: Counter[Tier] = Counter()
        self._shared: Counter[tuple[Tier, Ref]] = Counter()
        self.witness: StoreWitness | None = None
        self.other_names: HashNames | None = None

    @property
    def num_doubtful(self) -> int:
        """Doubtful claims, a block counted once a tier; for a while after a loss some that are sure again."""
        return sum(map(len, self.doubtful.values()))

    @property
    def num_dropped_marks(self) -> int:
        """Observed and predicted blocks that were given up at their bounds so far."""
        return self.observed.num_dropped + self.predicted.num_dropped

    def announce(self, tier: Tier, refs: Sequence[Ref]) -> None:
        """An event stored the blocks on the tier; none of them under a hash it was held by before."""
        bit = 1 << tier
        cleared = OBSERVED | PREDICTED if tier is Tier.GPU else 0
        for ref, before in self.index.claim(refs, self.slot, bit, cleared):
            if before & bit:
                self._shared[tier, ref] += 1
            self._supersede(ref, before & cleared)
        if self.doubtful[tier]:
            self.confirm(tier, refs)

    def withdraw(self, tier: Tier, refs: Sequence[Ref]) -> None:
        """An event removed the blocks from the tier; all were announced there."""
        if self._shared:
            refs = [ref for ref in refs if not self._drop_share(tier, ref)]
        bits = GPU | OBSERVED if tier is Tier.GPU else 1 << tier
        for ref, before in self.index.release(refs, self.slot, bits):
            if before & OBSERVED:
                self.observed.forget(ref)
        if self.doubtful[tier]:
            self.confirm(tier, refs)

    def confirm(self, tier: Tier, refs: Iterable[Ref]) -> None:
        """The claims on these blocks are true after all, or gone: not doubtful."""
        self.doubtful[tier].confirm(refs)

    def doubt_all(self, tier: Tier, held: Callable[[], list[Ref | None]], until: float) -> None:
        """All claims on the tier are older than a loss; those that were doubtful before keep their time.

        Args:
            held: tells them all, and None for those that name no block.
        """
        doubts, bit = self.doubtful[tier], 1 << tier
        doubts.note(held, lambda ref: bool(self.index.bits(ref, self.slot) & bit), until)
        doubts.proceed(_DOUBTED_AT_ONCE)

    def settle_stores(self, now: float) -> None:
        """Stores were made by now: whoever wants to know them may draw conclusions. O(what was stored)."""
        if self.witness is not None:
            self.witness.settle(now)

    def settle_doubt(self) -> None:
        """Go on with what losses have left to do; O(1). Whenever the rank is told the time."""
        for doubts in self.doubtful.values():
            doubts.proceed(_DOUBTED_AT_ONCE)

    def settle_share(self, now: float) -> None:
        """Come nearer to a share of the bounds that has shrunk; O(1)."""
        self.observed.settle()
        self.predicted.settle()
        for departures in self.departures.values():
            departures.settle(now)

    def look(self, blocks: PromptBlocks) -> tuple[Sequence[Ref], Sequence[BitRun]]:
        """Refs of a prompt's blocks, and this rank's bits on them."""
        return blocks.look(self.index, self.slot)

    def bits(self, refs: Iterable[Ref]) -> list[int]:
        """This rank's bits on each block."""
        return [self.index.bits(ref, self.slot) for ref in refs]

    def retire(self, announced: Iterable[Table[Ref]]) -> None:
        """Drop every claim of every kind at once: begin anew in another slot. O(observed + predicted).

        Args:
            announced: all that is announced on any tier, by hash.
        """
        left, self.slot = self.slot, self.index.take_slot()
        marks = [kind.move(self.slot) for kind in (self.observed, self.predicted)]
        self.index.retired.add(left, [*announced, *marks])
        for doubts in self.doubtful.values():
            doubts.clear()
        self._shared = Counter()

    def close(self) -> None:
        """Give the slot back; every bit has been cleared."""
        self.index.free_slot(self.slot)

    def check(self, announced: dict[Tier, Counter[Ref]]) -> None:
        """Verify that the index holds exactly these announced claims and the marks."""
        bits_of = dict(self.index.blocks_of(self.slot))
        for tier, counts in announced.items():
            expected = {ref for ref, bits in bits_of.items() if bits >> tier & 1}
            assert counts.keys() == expected, f"{tier.name}: {counts.keys() ^ expected}"
            shares = {ref: count - 1 for ref, count in counts.items() if count > 1}
            assert shares == {ref: n for (t, ref), n in self._shared.items() if t is tier}
            self.doubtful[tier].check(expected)
        for departures in self.departures.values():
            departures.check()
        self.observed.check({ref for ref, bits in bits_of.items() if bits & OBSERVED})
        self.predicted.check({ref for ref, bits in bits_of.items() if bits & PREDICTED})
        assert not any(bits & GPU and bits & (OBSERVED | PREDICTED) for bits in bits_of.values())

    def _supersede(self, ref: Ref, marks: int) -> None:
        if marks & OBSERVED:
            self.observed.forget(ref)
        if marks & PREDICTED:
            self.predicted.forget(ref)

    def _drop_share(self, tier: Tier, ref: Ref) -> bool:
        count = self._shared.get((tier, ref), 0)
        if count > 1:
            self._shared[tier, ref] = count - 1
        elif count == 1:
            del self._shared[tier, ref]
        return count > 0
