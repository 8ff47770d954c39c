"""One storage pool's claims out of the lines of a dump.

What its own events have told is loaded where none of them was heard here, and as a whole or not at all. Copies
that are inferred are loaded in any case: each is one more, and ages from when it was inferred.
"""

from indexer.block_index import BlockIndex
from indexer.dump_format import ObservedLine, PoolEndLine, PoolLine, SpaceLine
from indexer.ledger_load import Content, LedgerLoad
from indexer.pool_book import PoolBook


class PoolLoad:
    """Fills the books of one pool.

    Args:
        max_claims: of all ranks and pools together; of one dump, no more key spaces either.

    Attributes:
        takes_events: what its events have told is loaded.
    """

    def __init__(
        self,
        book: PoolBook,
        index: BlockIndex,
        line: PoolLine,
        max_claims: int,
        now: float,
        *,
        takes_events: bool,
    ) -> None:
        self.line = line
        self.book = book
        self.takes_events = takes_events and book.can_restore(line.trust, line.seq)
        self._num_resets = book.num_resets
        self._now = now
        self._content = LedgerLoad(book.ledger, book.pool.model, index, max_claims, now)
        if self.takes_events:
            geometries = {(size, is_eagle): count for size, is_eagle, count in line.geometries}
            book.ledger.geometries.update(geometries)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was forgotten of the books since the load began."""
        return self._num_resets == self.book.num_resets

    def add(self, line: Content) -> None:
        """One line more, if it is to be loaded; O(its blocks).

        Raises:
            DumpError: it does not fit what came before.
        """
        match line:
            case SpaceLine():
                self._content.add(line)
            case ObservedLine() if self.book.infers:
                self._content.add(line)
            case ObservedLine():
                pass
            case _ if self.takes_events:
                self._content.add(line)

    def finish(self, line: PoolEndLine) -> None:
        """The pool is whole.

        Raises:
            DumpError: it is not.
        """
        if self.takes_events:
            self._content.expect_held(line.held)
            self.book.restored(self.line.seq, self.line.trust, self._now)
