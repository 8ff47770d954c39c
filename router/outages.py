"""Requests that wait for a worker which stops answering: their wait ends when the worker turns unhealthy.

A process that is frozen keeps its connections open and says nothing, so that nothing but its health tells
it from a busy one. Only those that have not got a byte end: an answer that runs is bounded by silence alone.
"""

import asyncio
from types import TracebackType

from protocol import WorkerId
from router.upstream import Fault, UpstreamError


class Outages:
    """Who waits for which worker. As many waits as requests are in flight."""

    def __init__(self) -> None:
        self._waiting: dict[WorkerId, set[asyncio.Timeout]] = {}

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a first byte."""
        return sum(map(len, self._waiting.values()))

    def wait_for(self, worker: WorkerId) -> "Wait":
        """Within the block, the worker's turning unhealthy raises ``UpstreamError``."""
        return Wait(self._waiting, worker)

    def declare(self, worker: WorkerId) -> None:
        """The worker has turned unhealthy."""
        for wait in self._waiting.pop(worker, ()):
            wait.reschedule(asyncio.get_running_loop().time())


class Wait:
    """One wait, as an asynchronous context manager.

    Raises:
        UpstreamError: on leaving, where the worker turned unhealthy within the block.
    """

    __slots__ = ("_timeout", "_waiting", "_worker")

    def __init__(self, waiting: dict[WorkerId, set[asyncio.Timeout]], worker: WorkerId) -> None:
        self._waiting = waiting
        self._worker = worker
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._waiting.setdefault(self._worker, set()).add(self._timeout)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        waits = self._waiting.get(self._worker)
        if waits is not None:
            waits.discard(self._timeout)
            if not waits:
                del self._waiting[self._worker]
        try:
            await self._timeout.__aexit__(exc_type, exc, traceback)
        except TimeoutError as error:
            raise UpstreamError(Fault.UNHEALTHY, "the worker stopped answering") from error
