"""Whose turn it is to be told the time: so many ranks at a time, each once a round.

What time alone changes is small and may be late, but with a thousand ranks it takes too long for one go.
"""

from collections.abc import Mapping
from typing import TypeVar

from protocol import Rank

B = TypeVar("B")


class RankTurns:
    """At most ``max_ranks`` ranks a turn. Ranks that come during a round take part in the next one."""

    def __init__(self, max_ranks: int) -> None:
        self._max_ranks = max_ranks
        self._left: list[Rank] = []

    @property
    def is_round_over(self) -> bool:
        """Whether every rank has had its turn."""
        return not self._left

    def take(self, books: Mapping[Rank, B]) -> list[B]:
        """The books of the next ranks that are still there; O(``max_ranks``), and O(ranks) in C once a round."""
        if not self._left:
            self._left = list(books)
        next_ones = self._left[-self._max_ranks :]
        del self._left[-self._max_ranks :]
        return [books[rank] for rank in next_ones if rank in books]
