"""What was held a while ago: a bounded memory that forgets by generations.

New entries go to the young generation. When it is full the old one is forgotten and the young one takes
its place, so an entry is remembered for at least ``limit`` and at most twice as many later ones, at the
price of one dictionary store.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from indexer.fleet_share import UNSHARED, FleetShare

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Two generations of at most a share of ``limit`` entries each, give or take one batch.

    ``young`` may be written directly where speed matters; ``turn`` then keeps the bound.
    """

    __slots__ = ("_limit", "_old", "_share", "young")

    def __init__(self, limit: int, share: FleetShare = UNSHARED) -> None:
        self._limit = limit
        self._share = share
        self.young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self.young or key in self._old

    def __len__(self) -> int:
        return len(self.young) + len(self._old)

    @property
    def generations(self) -> tuple[dict[K, V], dict[K, V]]:
        """The older one, and the young one."""
        return self._old, self.young

    def get(self, key: K) -> V | None:
        """The entry; None where it was never there, or is forgotten."""
        found = self.young.get(key)
        return self._old.get(key) if found is None else found

    def add(self, key: K, value: V) -> None:
        """Remember one entry."""
        self.young[key] = value
        self.turn()

    def items(self) -> list[tuple[K, V]]:
        """All entries, the older generation first."""
        return [*self._old.items(), *self.young.items()]

    def turn(self) -> None:
        """Begin a new generation if the young one is full."""
        if len(self.young) > self._share.of(self._limit):
            self._old, self.young = self.young, {}

    def settle(self) -> None:
        """Come down to a share that has shrunk, with the second call at the latest; O(1)."""
        if len(self._old) > 2 * self._share.of(self._limit):
            self._old = {}
        self.turn()

    def clear(self) -> None:
        """Forget everything."""
        self.young, self._old = {}, {}
