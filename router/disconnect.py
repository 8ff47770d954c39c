"""Cancel the work of a request when its client leaves, in whatever phase it is."""

import asyncio
from types import TracebackType

from starlette.types import Receive

from router.body import ClientClosedError


class DisconnectWatch:
    """Within the block, a client that closes its connection cancels the current task.

    The cancellation comes out of the block as ``ClientClosedError``; one that somebody else asked for
    stays a ``CancelledError``. The request's body must have been read. The watch owns one task, which
    ends with the block.
    """

    __slots__ = ("_has_left", "_is_active", "_num_cancelling", "_receive", "_task", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_left = False
        self._is_active = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "used within a task"
        self._task = task
        self._num_cancelling = task.cancelling()
        self._is_active = True
        self._watcher = task.get_loop().create_task(_until_disconnect(self._receive))
        self._watcher.add_done_callback(self._on_done)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_active = False
        self._watcher.cancel()
        if self._has_left:
            is_ours = self._task.uncancel() <= self._num_cancelling
            if is_ours and isinstance(exc, asyncio.CancelledError):
                raise ClientClosedError from exc

    def _on_done(self, watcher: asyncio.Task[None]) -> None:
        if watcher.cancelled():
            return
        watcher.exception()
        if self._is_active:
            self._has_left = True
            self._task.cancel("the client closed its connection")


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
