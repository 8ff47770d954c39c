"""Connections to workers that are kept: the last one used is used next, those unused go.

One list of idle connections an origin, the latest at its end. A connection leaves it when it is taken, when
it has idled for ``KEEP_ALIVE_S``, and when the worker closes it. At ``max_idle`` idle ones of an origin the one
that has idled longest is closed for a new one; so there are at most as many connections as requests in flight,
which the front door bounds, and ``max_idle`` an origin. Beyond ``MAX_ORIGINS`` those without an idle connection
are forgotten.

One timer looks through all connections for those which have overstayed, idle or awaited: a deadline is kept
within ``SWEEP_S``, or a quarter of the shortest timeout where that is less. It runs while there are any.
"""

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from router.causes import cause_of
from router.dialer import Dialer
from router.upstream_answer import UpstreamTimeouts
from router.upstream_connection import UpstreamConnection
from router.upstream_faults import Fault, UpstreamError

# Engines on uvicorn close idle connections after 5 s: let go before they do.
KEEP_ALIVE_S = 4.0
MAX_IDLE = 512
MAX_ORIGINS = 4096
SWEEP_S = 1.0
_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True, eq=False)
class Origin:
    """Scheme, host and port, and the idle connections to it.

    Attributes:
        host_field: what ``Host`` says.
    """

    host: str
    port: int
    is_tls: bool
    host_field: str
    idle: list[UpstreamConnection] = field(default_factory=list)


class UpstreamPool:
    """Opens connections and keeps them. Of one event loop.

    Args:
        max_idle: connections of an origin that are kept; with 0 each serves one request.
    """

    def __init__(
        self,
        timeouts: UpstreamTimeouts,
        loop: asyncio.AbstractEventLoop,
        dialer: Dialer | None = None,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._timeouts = timeouts
        self._loop = loop
        self._dialer = dialer or Dialer(loop)
        self.max_idle = max_idle
        self._origins: dict[str, Origin] = {}
        self._open: set[UpstreamConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_s = min(SWEEP_S, min(timeouts.first_byte_s, timeouts.idle_s) / 4)

    @property
    def num_open(self) -> int:
        """Connections at the moment, idle or not."""
        return len(self._open)

    @property
    def num_idle(self) -> int:
        """Those of them that wait for a request. O(origins)."""
        return sum(len(origin.idle) for origin in self._origins.values())

    def origin(self, base: str) -> Origin:
        """Of ``scheme://host:port``.

        Raises:
            ValueError: it is none.
        """
        found = self._origins.get(base)
        if found is None:
            if len(self._origins) >= MAX_ORIGINS:
                self._origins = {name: one for name, one in self._origins.items() if one.idle}
            found = self._origins[base] = _parsed(base)
        return found

    def take(self, origin: Origin) -> UpstreamConnection | None:
        """The idle connection that was used last; None where there is none."""
        idle, now = origin.idle, self._loop.time()
        while idle:
            connection = idle.pop()
            if connection.is_usable and connection.due > now:
                return connection
            connection.close()
        return None

    async def connect(self, origin: Origin) -> UpstreamConnection:
        """A new connection.

        Raises:
            UpstreamError: none came about, or not in time.
        """
        connection = UpstreamConnection(_Home(self, origin), self._loop, self._timeouts)
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                await self._dialer.dial(
                    lambda: connection, origin.host, origin.port, is_tls=origin.is_tls
                )
            self._join(connection)
        except TimeoutError as error:
            raise UpstreamError(Fault.CONNECT, "no connection in time") from error
        except (OSError, ValueError) as error:  # UnicodeError among them
            raise UpstreamError(Fault.CONNECT, cause_of(error)) from error
        finally:
            if connection not in self._open:
                connection.close()
        return connection

    def drop_idle(self, origin: Origin) -> None:
        """Close the idle ones: the worker has closed one of their kind."""
        idle, origin.idle = origin.idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.close()

    def check(self) -> None:
        """Verify the invariants: idle connections are open and in one list, once."""
        idle = [one for origin in self._origins.values() for one in origin.idle]
        assert len(idle) == len(set(idle)), "a connection is idle twice"
        assert self._open.issuperset(idle), "a connection is idle and gone"
        assert all(len(origin.idle) <= self.max_idle for origin in self._origins.values())
        assert (self._timer is not None) is bool(self._open), "the timer runs while there are any"

    def left(self, connection: UpstreamConnection) -> None:
        """It is gone."""
        self._open.discard(connection)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _join(self, connection: UpstreamConnection) -> None:
        """A connection is open, and somebody's. One that is given up as it comes about never is: it is closed, but not
        every loop tells it so. Of one that is closed already it is known, or will be."""
        if not connection.is_usable:
            return
        self._open.add(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self._sweep_s, self._sweep)

    def _sweep(self) -> None:
        """O(connections), some 50 ns each."""
        self._timer = self._loop.call_later(self._sweep_s, self._sweep)
        now = self._loop.time()
        for connection in [one for one in self._open if one.due <= now]:
            connection.expire()


@dataclass(frozen=True, slots=True)
class _Home:
    """The pool, as the connections of one origin see it."""

    pool: UpstreamPool
    origin: Origin

    def released(self, connection: UpstreamConnection, now: float) -> None:
        connection.due = now + KEEP_ALIVE_S
        idle = self.origin.idle
        idle.append(connection)
        if len(idle) > self.pool.max_idle:
            idle.pop(0).close()

    def lost(self, connection: UpstreamConnection) -> None:
        self.pool.left(connection)
        if connection in self.origin.idle:
            self.origin.idle.remove(connection)


def _parsed(base: str) -> Origin:
    parts = urlsplit(base)
    host = parts.hostname
    if parts.scheme not in _PORTS or not host:
        raise ValueError(f"{base!r} is no http or https URL")
    default = _PORTS[parts.scheme]
    port = parts.port or default
    named = f"[{host.partition('%')[0]}]" if ":" in host else host
    host_field = named if port == default else f"{named}:{port}"
    return Origin(host, port, parts.scheme == "https", host_field)
