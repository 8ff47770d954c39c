"""What one rank may keep of what is bounded a rank, where there are many ranks.

Up to ``num_full`` ranks have their tables in full. With more of them each has an equal share of what so many
would have, so the bound over the fleet is ``num_full`` times the bound of a rank however many there are.

    ranks     1 … num_full     2 · num_full     8 · num_full
    share     all              a half           an eighth
"""

import sys


class FleetShare:
    """Shares of bounds. O(1).

    Attributes:
        num_holders: ranks and storage pools that keep tables.
    """

    __slots__ = ("_num_full", "num_holders")

    def __init__(self, num_full: int = sys.maxsize) -> None:
        self._num_full = num_full
        self.num_holders = 0

    @property
    def is_scarce(self) -> bool:
        """Whether nobody has the whole of a bound."""
        return self.num_holders > self._num_full

    def of(self, limit: int) -> int:
        """The share of a bound; at least 1."""
        if self.num_holders <= self._num_full:
            return limit
        return max(limit * self._num_full // self.num_holders, 1)


UNSHARED = FleetShare()
"""All of every bound: for a table that stands alone. Nobody changes it."""
