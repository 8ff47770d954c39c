"""The ranks of one worker, and which of them takes the next request."""

from collections.abc import Iterator, Sequence

from worker.rank import RankRunner
from worker.storage import Storage


class RankSet:
    """Requests that name no rank go round; ``storage`` is what all ranks share, if there is any."""

    def __init__(self, runners: Sequence[RankRunner], storage: Storage | None = None) -> None:
        self.storage = storage
        self._runners = tuple(runners)
        self._next = 0

    def __iter__(self) -> Iterator[RankRunner]:
        return iter(self._runners)

    def choose(self, dp_rank: int | None) -> RankRunner:
        """The rank that was asked for, or the next one.

        Raises:
            IndexError: there is no such rank.
        """
        if dp_rank is not None:
            return self._runners[dp_rank]
        runner = self._runners[self._next]
        self._next = (self._next + 1) % len(self._runners)
        return runner

    def cut_answers(self) -> None:
        """End everything that is waited for, unfinished."""
        for runner in self._runners:
            runner.cut_answers()
