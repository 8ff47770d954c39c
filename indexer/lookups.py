"""Where ranks are looked up: what every lookup over the same ranks would work out anew.

Most requests are about the same ranks, and how those are looked up changes only where a rank comes, goes,
or uses another block size. So the answer is kept by ranks, and dropped as a whole at any such change.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from indexer.engine_profile import EngineProfile, profile_of
from indexer.match import Geometry
from indexer.prefix_walk import SharedBits
from indexer.rank_book import RankBook
from indexer.slot_bits import slots_mask
from indexer.storage_pools import StoragePools
from protocol import Rank

_MAX_KEPT = 256


class Search(NamedTuple):
    """One key space to look into.

    Attributes:
        watched: the slots to be looked up, as a mask.
        gpu_first: those of them whose engine takes GPU blocks first.
        pools: what storage pools hold for some of them.
    """

    geometry: Geometry
    watched: int
    gpu_first: frozenset[int]
    pools: tuple[SharedBits, ...]


class Lookup(NamedTuple):
    """How to look up some ranks.

    Attributes:
        books: one a rank, in the same order; None for a rank that is not known.
        searches: one for each geometry in use.
    """

    books: Sequence[RankBook | None]
    searches: Sequence[Search]


class LookupTable:
    """Lookups by ranks. At 256 different selections of ranks all are dropped and made again."""

    def __init__(self, books: Mapping[Rank, RankBook], pools: StoragePools) -> None:
        self._books = books
        self._pools = pools
        self._kept: dict[tuple[Rank, ...], Lookup] = {}

    def of(self, ranks: Sequence[Rank]) -> Lookup:
        """How to look up these ranks. O(ranks)."""
        name = tuple(ranks)
        lookup = self._kept.get(name)
        if lookup is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            lookup = self._kept[name] = self._make(name)
        return lookup

    def drop(self) -> None:
        """A rank came, went, or is looked up elsewhere."""
        self._kept.clear()

    def check(self) -> None:
        """Verify that what is kept is what would be made."""
        assert len(self._kept) <= _MAX_KEPT
        for ranks, lookup in self._kept.items():
            made = self._make(ranks)
            assert lookup.searches == made.searches, (lookup, made)
            assert all(a is b for a, b in zip(lookup.books, made.books, strict=True))

    def _make(self, ranks: tuple[Rank, ...]) -> Lookup:
        books = [self._books.get(rank) for rank in ranks]
        found: dict[Geometry, list[RankBook]] = {}
        for book in books:
            if book is not None:
                for geometry in book.lookups:
                    found.setdefault(geometry, []).append(book)
        return Lookup(books, [self._search(geometry, own) for geometry, own in found.items()])

    def _search(self, geometry: Geometry, books: Sequence[RankBook]) -> Search:
        first = [book for book in books if profile_of(book.spec.engine) is EngineProfile.GPU_FIRST]
        return Search(
            geometry,
            slots_mask(book.slot for book in books),
            frozenset(book.slot for book in first),
            self._pools.shared(books),
        )
