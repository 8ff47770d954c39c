"""Claims of one tier that are older than a loss, and until when they are kept unless confirmed.

A loss puts every claim in doubt, and there may be millions. So it notes which there are, in C, and they are entered
a few at a time; those that events or evidence speak of meanwhile are kept apart.

    loss ──▶ noted: a b c d e …   sure: c     ──proceed──▶  entered: e d b a → until when

A further loss doubts what the ones before do not: while some are noted, that is what became sure since.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from indexer.block_index import Ref

_MAX_NOTES = 2


class _Note:
    """What one loss found, and what has become sure since."""

    __slots__ = ("refs", "sure", "until")

    def __init__(self, refs: list[Ref | None], until: float) -> None:
        self.refs = refs
        self.until = until
        self.sure: set[Ref] = set()


class Doubts:
    """Doubtful claims of one tier of one rank. At most two losses are noted; a third one joins the second,
    whose claims are kept for as much longer.
    """

    __slots__ = ("_notes", "_until")

    def __init__(self) -> None:
        self._until: dict[Ref, float] = {}  # the first to go first
        self._notes: deque[_Note] = deque()

    def __len__(self) -> int:
        """Those entered, and those noted whether sure by now or not."""
        return len(self._until) + sum(len(note.refs) for note in self._notes)

    def __bool__(self) -> bool:
        return bool(self._until or self._notes)

    def note(
        self, held: Callable[[], list[Ref | None]], is_held: Callable[[Ref], bool], until: float
    ) -> None:
        """A loss. O(claims) in C; where one is noted already, O(what became sure since).

        Args:
            held: tells all claims, and None for those that name no block.
            is_held: tells whether a block is claimed.
        """
        if not self._notes:
            self._notes.append(_Note(held(), until))
            return
        last = self._notes[-1]
        again: list[Ref | None] = [ref for ref in last.sure if is_held(ref)]
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(_Note(again, until))
            return
        kept = [ref for ref in last.refs if ref not in last.sure]
        self._notes[-1] = _Note(kept + again, until)

    def proceed(self, count: int) -> None:
        """Enter up to so many of those that are noted. O(``count``)."""
        while self._notes and count > 0:
            note = self._notes[0]
            some = note.refs[-count:]
            del note.refs[-count:]
            count -= len(some)
            self.enter(
                (ref for ref in some if ref is not None and ref not in note.sure), note.until
            )
            if not note.refs:
                self._notes.popleft()

    def enter(self, refs: Iterable[Ref], until: float) -> None:
        """These are doubtful; those that were before keep their time. None goes before one entered earlier."""
        doubtful = self._until
        if doubtful:
            until = max(until, next(reversed(doubtful.values())))
        for ref in refs:
            doubtful.setdefault(ref, until)

    def confirm(self, refs: Iterable[Ref]) -> None:
        """These claims are true after all, or gone. O(refs)."""
        if self._notes:
            refs = list(refs)
            for note in self._notes:
                note.sure.update(refs)
        if self._until:
            pop = self._until.pop
            for ref in refs:
                pop(ref, None)

    def clear(self) -> None:
        """Nothing is claimed any more."""
        self._until = {}
        self._notes.clear()

    def has_overdue(self, now: float) -> bool:
        """Whether the time of one is over."""
        return bool(self._until) and next(iter(self._until.values())) <= now

    def is_overdue(self, ref: Ref, now: float) -> bool:
        """Whether the claim on the block is doubtful and its time is over."""
        until = self._until.get(ref)
        return until is not None and until <= now

    def check(self, claimed: Collection[Ref]) -> None:
        """Verify that only claims are in doubt, the order, and the bound."""
        in_doubt = chain(self._until, *map(_unsure, self._notes))
        assert all(ref in claimed for ref in in_doubt), "in doubt, and not claimed"
        ends = list(self._until.values())
        assert ends == sorted(ends), "doubt ends out of order"
        assert len(self._notes) <= _MAX_NOTES


def _unsure(note: _Note) -> Iterator[Ref]:
    return (ref for ref in note.refs if ref is not None and ref not in note.sure)
