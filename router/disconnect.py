"""Cancel the work of a request when its client leaves, in whatever phase it is."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from router.body import ClientClosedError
from router.connections import ConnectionEnd
from router.http_cycle import FrontDoorCycle


class ClientConnection(Protocol):
    """A client's connection, as the server shows it.

    Attributes:
        has_left: the client closed it.
        is_surplus: it is one more than the port takes.
        on_leave: called once when the client closes it.
        refused_as: what the client was told in place of an answer to a request that had begun.
        running: the request that is served, or was served last.
    """

    has_left: bool
    is_surplus: bool
    on_leave: Callable[[], None] | None
    refused_as: ConnectionEnd | None
    running: FrontDoorCycle | None


class DisconnectWatch:
    """Within the block, a client that closes its connection cancels the current task.

    The cancellation comes out of the block as ``ClientClosedError``; one that somebody else asked for
    stays a ``CancelledError``. One request at a time watches a connection.
    """

    __slots__ = ("_connection", "_has_left", "_num_cancelling", "_task")

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._has_left = False

    def __enter__(self) -> None:
        running = self._connection.running
        task = asyncio.current_task() if running is None else running.task
        assert task is not None, "used within a task"
        self._task = task
        self._num_cancelling = task.cancelling()
        self._connection.on_leave = self._cancel
        if self._connection.has_left:
            self._cancel()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection.on_leave == self._cancel:
            self._connection.on_leave = None
        if self._has_left:
            is_ours = self._task.uncancel() <= self._num_cancelling
            if is_ours and isinstance(exc, asyncio.CancelledError):
                raise ClientClosedError from exc

    def _cancel(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._task.cancel("the client closed its connection")
