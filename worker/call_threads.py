"""Calls that block, on threads of their own: bounded, and none of them keeps the process alive.

A call that never comes back holds one thread; who awaits it may give up. Threads are daemons, for those of
the standard pool are joined at exit, however long that takes.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """As many calls wait as may."""


class CallThreads:
    """``num_threads`` calls at a time, and up to ``max_waiting`` more; further ones are refused."""

    def __init__(self, name: str, num_threads: int, max_waiting: int) -> None:
        self._max_calls = num_threads + max_waiting
        self._num_calls = 0
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    async def call(self, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises. Giving up leaves out a call that has not begun.

        Raises:
            BusyError: too many calls are under way.
        """
        if self._num_calls >= self._max_calls:
            raise BusyError(f"{self._num_calls} calls are under way")
        loop = asyncio.get_running_loop()
        future: Future[T] = Future()
        self._num_calls += 1

        def run() -> None:
            try:
                _settle(future, work)
            finally:
                _tell(loop, self._count_ended)

        self._jobs.put(run)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let the threads end, each after what it is busy with."""
        for _ in self._threads:
            self._jobs.put(None)

    def _count_ended(self) -> None:
        self._num_calls -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  # it belongs to whoever awaits the call
        future.set_exception(error)
    else:
        future.set_result(result)


def _tell(loop: asyncio.AbstractEventLoop, news: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(news)
    except RuntimeError:
        return  # the loop was closed meanwhile: nobody counts any more
