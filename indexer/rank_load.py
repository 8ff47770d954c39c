"""One rank's claims out of the lines of a dump.

Whoever loads them forgets the rank when a line is wrong, so that a rank is there as a whole or not at all.
"""

from indexer.block_index import BlockIndex
from indexer.dump_format import RankEndLine, RankLine
from indexer.ledger_load import Content, LedgerLoad
from indexer.rank_book import RankBook
from indexer.trust import Trust

LOADABLE = frozenset((Trust.EXACT, Trust.JOINED, Trust.DEGRADED))
"""Trust of ranks that are worth loading."""


class RankLoad:
    """Fills the books of one rank, of which events have told nothing; requests may have.

    Args:
        max_claims: of all ranks together; of one dump, no more key spaces either.
    """

    def __init__(
        self, book: RankBook, index: BlockIndex, line: RankLine, max_claims: int, now: float
    ) -> None:
        self.line = line
        self.book = book
        self._num_resets = book.resets.total()
        self._now = now
        self._content = LedgerLoad(book.ledger, book.spec.model, index, max_claims, now)
        book.ledger.restore_traits(
            line.sparse,
            {(size, is_eagle): count for size, is_eagle, count in line.geometries},
            speaks_extra_keys=line.speaks_extra_keys,
            has_placeholders=line.has_placeholders,
            may_be_guessed=line.trust is not Trust.EXACT,
        )

    @property
    def is_whole(self) -> bool:
        """Whether nothing was forgotten of the books since the load began: their groups are those it fills."""
        return self._num_resets == self.book.resets.total()

    def add(self, line: Content) -> None:
        """One line more; O(its blocks).

        Raises:
            DumpError: it does not fit what came before.
        """
        self._content.add(line)

    def finish(self, line: RankEndLine) -> None:
        """The rank is whole.

        Raises:
            DumpError: it is not.
        """
        self._content.expect_held(line.held)
        is_doubted = self.line.trust is Trust.DEGRADED
        self.book.restored(self.line.seq, self._now, is_doubted=is_doubted)
