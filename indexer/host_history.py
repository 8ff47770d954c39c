"""Do the stores heard of account for every removal from HOST? One removal a physical copy is ordinary.

Claims are sets, but an engine that keeps two copies under one hash announces two stores and two removals
(namespaces that its hashes do not tell apart, second physical copies). So beside the one copy that the
ledger holds, further ones are counted here, for evidence alone: a removal of a hash that is not held uses
up one of them, and where there is none it is the removal of a block whose store nobody announced.

    store of a hash not held     held
    store of a hash held         held, 1 further copy
    removal                      not held, 1 further copy
    removal                      not held, no copy left
    removal                      never stored there

Where stores were missed (a late join, a loss) only removals are known to begin with. A hash that was removed is
gone; if it is removed again, and nobody announced a store in between, that was another copy, or a silent
store. Once may be a copy from the time before; so it is strange from the second time on.
"""

from collections.abc import Collection, Iterable, Sequence

from indexer.fleet_share import UNSHARED, FleetShare
from indexer.remembered import Remembered
from protocol import EngineHash


class HostHistory:
    """Copies on HOST of one rank beyond those that its ledger holds.

    At most a share of ``limit`` hashes have further copies. At the bound nothing is known any more, until the rank
    begins anew: no removal is called strange then, and no hit judged. After missed stores the last
    ``limit`` hashes that left are remembered, and up to twice as many.

    Attributes:
        is_known: every store on HOST since the rank was empty there was heard of, and is accounted for.
        is_overfull: the bound was reached.
        may_outlast: a clear spoke of every tier, and what was held on HOST may be there all the same.
    """

    __slots__ = ("_copies", "_gone", "_limit", "_share", "is_known", "is_overfull", "may_outlast")

    def __init__(self, limit: int, share: FleetShare = UNSHARED) -> None:
        self._limit = limit
        self._share = share
        self._copies: dict[EngineHash, int] = {}
        self._gone: Remembered[EngineHash, int] = Remembered(
            limit, share
        )  # → times removed in silence
        self.is_known = True
        self.is_overfull = False
        self.may_outlast = False

    @property
    def is_partial(self) -> bool:
        """Whether stores were missed, and all is heard since: ``note_gone`` is to be told of removals."""
        return not self.is_known and not self.is_overfull

    @property
    def is_complete(self) -> bool:
        """Whether nothing is on HOST but what the ledger holds, and further copies."""
        return self.is_known and not self.may_outlast

    def begin(self) -> None:
        """The rank is empty on HOST, and every store from here on will be heard."""
        self._copies.clear()
        self._gone.clear()
        self.is_known = True
        self.is_overfull = False
        self.may_outlast = False

    def lose(self) -> None:
        """Stores on HOST may have been missed."""
        self._copies.clear()
        self._gone.clear()
        self.is_known = False

    def note_gone(self, hashes: Iterable[EngineHash]) -> None:
        """These were held and are no longer, said events. O(hashes)."""
        for block_hash in hashes:
            self._gone.add(block_hash, 0)

    def settle_share(self) -> None:
        """Come down to a share that has shrunk; O(1)."""
        self._gone.settle()
        if len(self._copies) > self._share.of(self._limit):
            self.lose()
            self.is_overfull = True

    def outlast(self, hashes: Collection[EngineHash]) -> None:
        """The ledger gives these up, though nobody said that they left HOST."""
        self.may_outlast = self.may_outlast or bool(hashes)
        if len(hashes) > self._share.of(self._limit):
            self.lose()
        else:
            self.add(hashes)

    def add(self, hashes: Iterable[EngineHash]) -> None:
        """One more copy of each, beyond what the ledger holds. O(hashes)."""
        if self.is_overfull:
            return
        copies = self._copies
        for block_hash in hashes:
            copies[block_hash] = copies.get(block_hash, 0) + 1
        if len(copies) > self._share.of(self._limit):
            self.lose()
            self.is_overfull = True

    def use_up(self, hashes: Sequence[EngineHash]) -> list[EngineHash]:
        """These were removed, and the ledger does not hold them: each takes one further copy along.

        Returns:
            Those that have none, so that their store was never announced; nothing where it is not known.
        """
        if self.is_overfull:
            return []
        copies = self._copies
        strange: list[EngineHash] = []
        for block_hash in hashes:
            count = copies.get(block_hash, 0)
            if count > 1:
                copies[block_hash] = count - 1
            elif count == 1:
                del copies[block_hash]
            elif self.is_known or self._is_gone_again(block_hash):
                strange.append(block_hash)
        return strange

    def _is_gone_again(self, block_hash: EngineHash) -> bool:
        """Whether a hash that is gone was removed in silence for the second time."""
        before = self._gone.get(block_hash)
        times = 0 if before is None else before + 1
        self._gone.add(block_hash, times)
        return times > 1

    def check(self) -> None:
        """Verify the bounds, and that no entry is empty."""
        assert len(self._copies) <= self._limit
        assert len(self._gone) <= 2 * (self._limit + 1)
        assert not (self.is_known and (self.is_overfull or len(self._gone)))
        assert not (self.is_overfull and self._copies)
        assert all(count > 0 for count in self._copies.values())
