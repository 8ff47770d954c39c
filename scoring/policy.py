"""The seam of a policy: it orders the eligible ranks of a weighing, and may remember what came of it.

Every policy sees the same options, priced the same way; it only orders them. Where several are
equally good, one of them is drawn, so that equal ranks share the work.
"""

from random import Random
from typing import Protocol

from indexer.match import Prompt
from scoring.ranking import Ranking
from scoring.weighing import Weighing
from scoring.worker_table import RankRow


class Policy(Protocol):
    """A way to order ranks. A rank that leaves and comes back is another row."""

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:
        """Rank the options, at least two. Changes nothing."""

    def chose(self, weighing: Weighing, row: RankRow, now: float) -> None:
        """The request goes to the rank, which may have been the only one."""

    def ended(self, row: RankRow, prompt: Prompt | None) -> None:
        """A request that went to the rank is over, once; the rank may have left."""

    def forget(self, row: RankRow) -> None:
        """The rank is gone."""

    def check(self) -> None:
        """Verify all invariants."""


class Stateless:
    """A policy that does not remember what it chose."""

    def chose(self, weighing: Weighing, row: RankRow, now: float) -> None:
        """Nothing to remember."""

    def ended(self, row: RankRow, prompt: Prompt | None) -> None:
        """Nothing was remembered."""

    def forget(self, row: RankRow) -> None:
        """Nothing to forget."""

    def check(self) -> None:
        """Nothing can be wrong."""
