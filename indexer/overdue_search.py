"""The hashes of a rank, looked through a few at a time for those whose doubt is over."""

from collections.abc import Iterable, Iterator, Sequence

from indexer.group_ledger import GroupLedger
from protocol import EngineHash, Tier


class OverdueSearch:
    """A walk along what groups hold when it begins. O(claims) in C to make, 8 bytes each to keep."""

    def __init__(self, groups: Iterable[GroupLedger]) -> None:
        self._left = [(group, tier, list(group.hashes(tier))) for group in groups for tier in Tier]

    @property
    def is_over(self) -> bool:
        """Whether everything was looked at."""
        return not self._left

    def next(self, count: int) -> Iterator[tuple[GroupLedger, Tier, Sequence[EngineHash]]]:
        """The next ``count`` hashes, by group and tier; some may be held no longer."""
        while self._left and count > 0:
            group, tier, hashes = self._left[-1]
            some = hashes[-count:]
            del hashes[-count:]
            count -= len(some)
            if not hashes:
                self._left.pop()
            yield group, tier, some
