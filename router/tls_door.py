"""Where connections of a port at https come in: each is counted from its first packet, not from the end of its handshake.

    accept ─┬─ room ─▶ handshake, within ``head_s`` ─┬─ done ─▶ a connection like any other
            │                                        └─ failed, or late ─▶ closed, counted
            └─ none ─▶ closed, counted

The event loop's own server tells of a connection when its handshake is over. Until then it would count for nothing, and whoever
begins handshakes and goes no further could have as many as the process may open files.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from router.connections import NUM_SURPLUS, ConnectionEnd, ConnectionGuard

logger = logging.getLogger(__name__)

_MAX_AT_ONCE = 64  # connections accepted in one turn of the loop
_PAUSE_S = 1.0  # after a failure to accept: there is no file left, mostly


class TlsDoor:
    """Accepts at one socket. It owns the tasks of its handshakes; ``close`` ends them.

    Args:
        make: what becomes of a connection once it speaks TLS.
    """

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        guard: ConnectionGuard,
    ) -> None:
        self._sock = sock
        self._make = make
        self._context = context
        self._guard = guard
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Accept from here on."""
        self._sock.setblocking(False)  # noqa: FBT003
        self._listen()

    def close(self) -> None:
        """Accept nothing more, and end the handshakes that are under way."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock)
        if self._pause is not None:
            self._pause.cancel()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Until all of it has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _listen(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_MAX_AT_ONCE):
            try:
                client, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("cannot accept a connection: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._sock)
                self._pause = loop.call_later(_PAUSE_S, self._listen)
                return
            client.setblocking(False)  # noqa: FBT003
            self._admit(client)

    def _admit(self, client: socket.socket) -> None:
        guard = self._guard
        if guard.num_open + guard.num_shaking >= guard.limits.max_connections + NUM_SURPLUS:
            guard.ended[ConnectionEnd.TOO_MANY] += 1
            client.close()
            return
        guard.num_shaking += 1
        task = asyncio.get_running_loop().create_task(self._shake(client))
        self._tasks.add(task)
        task.add_done_callback(partial(self._shaken, client))

    def _shaken(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        """A handshake is over, were it ended before it began."""
        self._tasks.discard(task)
        self._guard.num_shaking -= 1
        if task.cancelled():
            client.close()

    async def _shake(self, client: socket.socket) -> None:
        guard = self._guard
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                client,
                ssl=self._context,
                ssl_handshake_timeout=guard.limits.head_s,
            )
        except OSError:  # of TLS, or the client is gone or late
            guard.ended[ConnectionEnd.HANDSHAKE] += 1
