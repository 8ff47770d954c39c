"""One rank's unannounced claims of one kind, oldest first: bounded, expiring, exact to undo.

Each mark is one bit (OBSERVED or PREDICTED) in the block index with the time it was last set.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from indexer.block_index import BlockIndex, Ref


class AgedMarks:
    """Marks of one bit in one slot. At ``limit`` the oldest go, and are counted in ``num_dropped``."""

    def __init__(self, index: BlockIndex, slot: int, bit: int, limit: int) -> None:
        self._index = index
        self._slot = slot
        self._bit = bit
        self._limit = limit
        self._times: OrderedDict[Ref, float] = OrderedDict()
        self.num_dropped = 0
        self.num_expired = 0

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._times

    def mark(self, refs: Sequence[Ref], now: float) -> None:
        """Set the bit on every block, or renew it; O(blocks).

        Args:
            refs: along a prompt; the last of them count as the oldest, so that what remains at the
                bound is a prefix.
        """
        times = self._times
        fresh = [ref for ref in refs if ref not in times]
        for ref in reversed(refs):
            times[ref] = now
            times.move_to_end(ref)
        self._index.claim(fresh, self._slot, self._bit)
        if len(times) > self._limit:
            self.num_dropped += self._unmark_oldest(len(times) - self._limit)

    def unmark(self, refs: Iterable[Ref]) -> None:
        """Clear the bit where it is set."""
        gone = [ref for ref in refs if self._times.pop(ref, None) is not None]
        self._index.release(gone, self._slot, self._bit)

    def forget(self, ref: Ref) -> None:
        """The bit has been cleared by an event: drop the mark."""
        del self._times[ref]

    def expire(self, before: float) -> None:
        """Clear every mark last set before that time; O(expired)."""
        expired = 0
        for time in self._times.values():
            if time >= before:
                break
            expired += 1
        self.num_expired += self._unmark_oldest(expired)

    def clear(self) -> None:
        """Clear all marks."""
        self._unmark_oldest(len(self._times))

    def check(self, expected: set[Ref]) -> None:
        """Verify that exactly the blocks ``expected`` are marked, and the bound."""
        assert self._times.keys() == expected, f"{self._times.keys() ^ expected}"
        assert len(self._times) <= self._limit
        times = list(self._times.values())
        assert times == sorted(times), "marks are out of order"

    def _unmark_oldest(self, count: int) -> int:
        self.unmark(list(islice(self._times, count)))
        return count
