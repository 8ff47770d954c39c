"""The ranks of one worker, and which of them takes the next request."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from worker.rank import RankRunner
from worker.remote_storage import RemoteStorage
from worker.request import EngineRequest
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

    @asynccontextmanager
    async def storage_at_hand(
        self, runner: RankRunner, request: EngineRequest
    ) -> AsyncIterator[None]:
        """What a storage in another process holds of the prompt, as long as the engine may ask for it."""
        if not isinstance(self.storage, RemoteStorage):
            yield
            return
        async with self.storage.at_hand(runner.engine.cache.lookup_pages(request)):
            yield

    def flush_caches(self, *, keeps_host: bool = False) -> bool:
        """Empty the caches of all ranks; False, with nothing done, while any of them has a request."""
        if any(runner.engine.num_running or runner.engine.num_waiting for runner in self._runners):
            return False
        for runner in self._runners:
            runner.flush_cache(keeps_host=keeps_host)
        return True

    def cut_answers(self) -> None:
        """End everything that is waited for, unfinished."""
        for runner in self._runners:
            runner.cut_answers()
