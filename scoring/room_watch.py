"""Who waits for room on a rank, as the planner sees it: somebody who is told when there may be some."""

from collections.abc import Sequence
from typing import Protocol

from protocol import Rank


class RoomWatch(Protocol):
    """Is told of room. What it is told changes nothing at once: it asks the planner later, of its own accord.

    Attributes:
        is_waited_for: somebody waits; until then no rank is told of.
    """

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits."""

    def rank_freed(self, rank: Rank) -> None:
        """A request on the rank is over."""

    def marks_changed(self) -> None:
        """A worker may be chosen that could not be, or the other way round."""

    def workers_changed(self) -> None:
        """A worker came, went, or is described anew."""


class Unwatched:
    """Nobody waits."""

    is_waited_for = False

    def rank_freed(self, rank: Rank) -> None:
        """Nothing to do."""

    def marks_changed(self) -> None:
        """Nothing to do."""

    def workers_changed(self) -> None:
        """Nothing to do."""


class SeveralWatches:
    """Several that wait for room on the same ranks, one for each relay. All are told of it, and whoever plans first has it."""

    def __init__(self, watches: Sequence[RoomWatch]) -> None:
        self._watches = tuple(watches)

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits with one of them."""
        return any(watch.is_waited_for for watch in self._watches)

    def rank_freed(self, rank: Rank) -> None:
        """Tell those with whom somebody waits."""
        for watch in self._watches:
            if watch.is_waited_for:
                watch.rank_freed(rank)

    def marks_changed(self) -> None:
        """Tell all."""
        for watch in self._watches:
            watch.marks_changed()

    def workers_changed(self) -> None:
        """Tell all."""
        for watch in self._watches:
            watch.workers_changed()


def together(watches: Sequence[RoomWatch]) -> RoomWatch:
    """All of them as one."""
    match watches:
        case ():
            return Unwatched()
        case (only,):
            return only
        case _:
            return SeveralWatches(watches)
