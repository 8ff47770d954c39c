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
        self._waiting: dict[WorkerId, set[Wait]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # known from the first wait on

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a first byte."""
        return sum(map(len, self._waiting.values()))

    def wait_for(self, worker: WorkerId) -> "Wait":
        """Within the block, the worker's turning unhealthy raises ``UpstreamError``."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return Wait(self._waiting, worker, self._loop)

    def declare(self, worker: WorkerId) -> None:
        """The worker has turned unhealthy."""
        for wait in self._waiting.pop(worker, ()):
            wait.give_up()


class Wait:
    """One wait of the current task, as a context manager.

    Raises:
        UpstreamError: on leaving, where the worker turned unhealthy within the block. A cancellation that
            somebody else asked for stays one.
    """

    __slots__ = ("_has_ended", "_loop", "_num_cancelling", "_task", "_waiting", "_worker")

    def __init__(
        self,
        waiting: "dict[WorkerId, set[Wait]]",
        worker: WorkerId,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        self._waiting = waiting
        self._worker = worker
        self._has_ended = False

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)  # told the loop, which costs a system call to find
        assert task is not None, "used within a task"
        self._task = task
        self._num_cancelling = task.cancelling()
        waits = self._waiting.get(self._worker)
        if waits is None:
            self._waiting[self._worker] = {self}
        else:
            waits.add(self)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        waits = self._waiting.get(self._worker)
        if waits is not None:
            waits.discard(self)
            if not waits:
                del self._waiting[self._worker]
        if self._has_ended:
            is_ours = self._task.uncancel() <= self._num_cancelling
            if is_ours and isinstance(exc, asyncio.CancelledError):
                raise UpstreamError(Fault.UNHEALTHY, "the worker stopped answering") from exc

    def give_up(self) -> None:
        """Cancel the task."""
        self._has_ended = True
        self._task.cancel("the worker stopped answering")
