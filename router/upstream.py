"""The client side of the proxy: one request to a worker, its answer chunk by chunk, faults by name.

    send ──▶ pool: a kept connection, or a new one ──▶ connection: write, parse ──▶ answer: read

Every way in which a worker can fail is one ``UpstreamError``. Connections are kept alive and reused; nothing
is decompressed, redirected, retried or remembered here: one ``send`` delivers a request once at most.

Timeouts: connecting, waiting for the head and for the first body byte, and silence between chunks. None
bounds a live answer as a whole, and none runs while a slow client makes the relay stop reading.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from router.dialer import Dialer
from router.headers import RawHeader
from router.upstream_answer import UpstreamAnswer, UpstreamTimeouts
from router.upstream_faults import Fault, UpstreamError
from router.upstream_pool import MAX_IDLE, UpstreamPool
from router.upstream_request import request_head

__all__ = [
    "Fault",
    "Upstream",
    "UpstreamAnswer",
    "UpstreamError",
    "UpstreamTimeouts",
    "open_upstream",
]

_AFTER_SCHEME = len("https://")


class Upstream:
    """Sends requests to workers."""

    __slots__ = ("_pool",)

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool

    @property
    def num_open(self) -> int:
        """Connections at the moment, idle or not."""
        return self._pool.num_open

    @property
    def num_idle(self) -> int:
        """Those of them that wait for a request."""
        return self._pool.num_idle

    def check(self) -> None:
        """Verify the pool's invariants."""
        self._pool.check()

    async def send(
        self,
        method: str,
        url: str,
        headers: Sequence[RawHeader],
        body: bytes,
        *,
        is_fresh: bool = False,
    ) -> UpstreamAnswer:
        """Send one request and wait for the head of its answer. Cancelling closes the connection.

        Args:
            method: as the client sent it.
            url: the worker's base and the client's raw target, which is not normalised.
            headers: end to end fields, in order; host and length are added.
            body: all of it.
            is_fresh: over a connection that has not served before.

        Raises:
            UpstreamError: no head came.
            ValueError: this is no request: its URL has no host, or a field a line break.
        """
        path_at = url.find("/", _AFTER_SCHEME)
        pool = self._pool
        origin = pool.origin(url[:path_at])
        head = request_head(method, url[path_at:], origin.host_field, headers, len(body))
        connection = None if is_fresh else pool.take(origin)
        if connection is None:
            connection = await pool.connect(origin)
        answer = connection.send(head, body, is_head_request=method == "HEAD")
        has_begun = False
        try:
            await answer.begun()
            has_begun = True
        except UpstreamError as error:
            if error.is_stale:
                pool.drop_idle(origin)
            raise
        finally:
            if not has_begun:  # nor has it where the head came as this was cancelled
                answer.close()
        return answer


@asynccontextmanager
async def open_upstream(
    timeouts: UpstreamTimeouts, dialer: Dialer | None = None, max_idle: int = MAX_IDLE
) -> AsyncIterator[Upstream]:
    """An ``Upstream`` with a connection pool of its own, which closes with the context.

    Args:
        dialer: by default one that trusts what the system trusts.
        max_idle: connections to each worker that are kept.
    """
    pool = UpstreamPool(timeouts, asyncio.get_running_loop(), dialer, max_idle)
    try:
        yield Upstream(pool)
    finally:
        pool.close()
        await asyncio.sleep(0)  # in which the connections close
