"""Which sources have open sockets, where they are connected to, and what is tried again.

A source opens as soon as the address of its host is known; one that names an address, or an endpoint that
we bind, opens at once. While a connection is missing its name is looked up again and again: a publisher that
has moved is followed, and further addresses of the name are tried in turn. What cannot be opened is counted
and tried again.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import zmq

from indexer.listener import HeardSource, Listener
from indexer.name_lookups import LOOKUP_FAULTS, NameLookups, Resolve, SystemResolver
from indexer.socket_limits import SocketLimits
from indexer.source_sockets import SourceSockets
from indexer.watched_sockets import SOCKET_FAULTS, host_of, is_address
from protocol import EventSource

logger = logging.getLogger(__name__)

Sockets: TypeAlias = SourceSockets | HeardSource
_Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_SOCKETS_A_SOURCE = 4


@dataclass(slots=True)
class SocketCounters:
    """What became of sockets.

    Attributes:
        open_failures: sources whose sockets could not be opened, each attempt.
        lookup_failures: names without an address, each attempt.
        moves: sources whose name led elsewhere, followed there.
        other_addresses: sources tried at another address of their name.
        given_up: connections that ZeroMQ gave up for good, made anew: the publisher sent a frame beyond the bound,
            or something that is none.
        foreign_topics: messages at an endpoint that we bind with a topic of no worker.
        dropped: messages at such an endpoint beyond what may wait.
    """

    open_failures: int = 0
    lookup_failures: int = 0
    moves: int = 0
    other_addresses: int = 0
    given_up: int = 0
    foreign_topics: int = 0
    dropped: int = 0


class SocketTable:
    """Sockets by source.

    Args:
        wake: called, on the loop, when something may have arrived.
        is_told_connected: whether the stream of a source believes that it is connected.
        context: to be used; None makes one for the time between ``start`` and ``close``.
        resolve: looks names up; None takes the system's resolver.

    Attributes:
        counters: what became of the sockets.
    """

    def __init__(
        self,
        limits: SocketLimits,
        wake: Callable[[Sockets], None],
        is_told_connected: Callable[[EventSource], bool],
        context: _Context | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._limits = limits
        self._wake = wake
        self._is_told_connected = is_told_connected
        self._given_context = context
        self._resolver = SystemResolver(limits.lookup_threads) if resolve is None else None
        self._lookups = NameLookups(resolve or self._resolver or _nowhere)
        self._context: _Context | None = None
        self._group: asyncio.TaskGroup | None = None
        self._sockets: dict[EventSource, Sockets | None] = {}  # None: not open
        self._listeners: dict[str, Listener] = {}
        self._looking: set[EventSource] = set()
        self._numbers = itertools.count()
        self._was_short = False
        self.counters = SocketCounters()

    def __contains__(self, source: EventSource) -> bool:
        return source in self._sockets

    def open(self) -> list[tuple[EventSource, Sockets]]:
        """Every source whose sockets are open."""
        return [(one, sockets) for one, sockets in self._sockets.items() if sockets is not None]

    def sockets(self, source: EventSource) -> Sockets | None:
        """The source's sockets, if they are open."""
        return self._sockets.get(source)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Open everything; ``group`` owns the look-ups from here on."""
        self._context = self._given_context or _make_context(self._limits)
        self._group = group
        for source in self._sockets:
            self._open(source)

    def close(self) -> None:
        """Close every socket, whatever happened."""
        context, self._context, self._group = self._context, None, None
        try:
            for _, sockets in self.open():
                sockets.close()
            for listener in self._listeners.values():
                listener.close()
            self._listeners.clear()
            self._sockets = dict.fromkeys(self._sockets)
        finally:
            if self._resolver is not None:
                self._resolver.close()
            if context is not None and self._given_context is None:
                context.destroy(linger=0)  # an open socket would keep it waiting for ever

    def add(self, source: EventSource) -> None:
        """Open the source's sockets, at once or with ``start``."""
        self._sockets[source] = None
        self._warn_if_short()
        if self._context is not None:
            self._open(source)

    def pop(self, source: EventSource) -> Sockets | None:
        """Forget the source; its sockets, if any, are the caller's to close."""
        return self._sockets.pop(source, None)

    def lose(self, source: EventSource) -> Sockets | None:
        """Open the source's sockets anew with the next ``try_again``; those it has are the caller's to close."""
        sockets = self.sockets(source)
        if source in self._sockets:
            self._sockets[source] = None
        return sockets

    def try_again(self) -> None:
        """Open what is not open, look up what has no connection, unbind what nobody listens at."""
        if self._context is None:
            return
        for endpoint, listener in tuple(self._listeners.items()):
            if listener.is_idle:
                self._close_listener(endpoint)
        self._lookups.keep({name for source in self._sockets for name in _names(source)})
        for source, sockets in tuple(self._sockets.items()):
            if sockets is None:
                self._open(source)
            elif not sockets.is_connected:
                self._look_up(source)
                self._connect_anew_if_given_up(source, sockets)
            elif any(self._lookups.first(name) is None for name in _names(source)):
                self._look_up(source)  # where it is asked for replays

    def traffic(self) -> SocketCounters:
        """The counters, with what open listeners count."""
        counters, listeners = self.counters, self._listeners.values()
        return replace(
            counters,
            foreign_topics=counters.foreign_topics + sum(one.num_foreign for one in listeners),
            dropped=counters.dropped + sum(one.num_dropped for one in listeners),
        )

    # Opening

    def _open(self, source: EventSource) -> None:
        host = host_of(source.endpoint)
        if source.is_bound or not _is_name(host):
            self._open_at(source, None)
        elif (address := self._lookups.first(host)) is not None:
            self._open_at(source, address)
        self._look_up(source)

    def _open_at(self, source: EventSource, address: str | None) -> None:
        """Open the source's sockets at an address of its host, where that is a name."""
        assert self._context is not None
        host = host_of(source.endpoint)

        def address_of(name: str) -> str | None:
            """Raises where nothing is known: ZeroMQ would look it up by itself, and go wherever that leads."""
            known = address if address and name == host else self._lookups.first(name)
            if known is None and _is_name(name):
                raise zmq.ZMQError(zmq.EHOSTUNREACH)
            return known

        try:
            if source.is_bound:
                listener = self._listener(source.endpoint)
                self._sockets[source] = HeardSource(listener, source, self._wake, address_of)
            else:
                number = next(self._numbers)
                limits = self._limits.of_one(len(self._sockets))
                self._sockets[source] = SourceSockets(
                    self._context, source, limits, self._wake, number, address_of=address_of
                )
        except SOCKET_FAULTS as error:
            self._sockets[source] = None
            self.counters.open_failures += 1
            logger.warning("cannot listen to %r: %s", source.endpoint, error)

    def _connect_anew_if_given_up(self, source: EventSource, sockets: Sockets) -> None:
        if not sockets.is_given_up or self._is_told_connected(source):
            return
        self.counters.given_up += 1
        logger.warning(
            "%r broke the protocol, perhaps by a frame of more than %d bytes: connecting anew",
            source.endpoint,
            self._limits.max_message_bytes,
        )
        sockets.close()
        self._open_at(source, sockets.address)

    def _listener(self, endpoint: str) -> Listener:
        listener = self._listeners.get(endpoint)
        if listener is None:
            assert self._context is not None
            name = f"bound-{next(self._numbers)}"
            limits = self._limits.of_one(len(self._sockets))
            listener = Listener(self._context, endpoint, limits, name)
            self._listeners[endpoint] = listener
            logger.info("listening for publishers at %s", endpoint)
        return listener

    def _close_listener(self, endpoint: str) -> None:
        listener = self._listeners.pop(endpoint)
        self.counters.foreign_topics += listener.num_foreign
        self.counters.dropped += listener.num_dropped
        listener.close()

    # Looking up

    def _look_up(self, source: EventSource) -> None:
        if self._group is not None and source not in self._looking and any(_names(source)):
            self._looking.add(source)
            self._group.create_task(self._follow(source))

    async def _follow(self, source: EventSource) -> None:
        """Look up the source's names, and open its sockets where they lead to."""
        try:
            for name in _names(source):
                await self._lookups.look_up(name)
        except LOOKUP_FAULTS as error:
            self.counters.lookup_failures += 1
            logger.debug("cannot look up %r: %s", source.endpoint, error)
        finally:
            self._looking.discard(source)
        if source in self._sockets and self._context is not None:
            self._move(source)

    def _move(self, source: EventSource) -> None:
        """Open at the name's address; elsewhere, if it leads elsewhere or was tried for long enough."""
        addresses = self._lookups.addresses(host_of(source.endpoint))
        sockets = self._sockets[source]
        if source.is_bound or not addresses:
            return
        if sockets is None:
            self._open_at(source, addresses[0])
            return
        if sockets.is_connected or self._is_told_connected(source):
            return
        if sockets.address not in addresses:
            self.counters.moves += 1
            address = addresses[0]
        elif len(addresses) > 1 and sockets.lost_s >= self._limits.other_address_s:
            self.counters.other_addresses += 1
            address = addresses[(addresses.index(sockets.address) + 1) % len(addresses)]
        else:
            return
        logger.info("looking for %s at %s", source.endpoint, address)
        sockets.close()
        self._open_at(source, address)

    def _warn_if_short(self) -> None:
        """Once: more sources than there are sockets for."""
        needed = _SOCKETS_A_SOURCE * len(self._sockets)
        if needed > self._limits.max_sockets and not self._was_short:
            self._was_short = True
            logger.warning(
                "%d event sources need %d sockets, and there are %d: raise the limit of open files",
                len(self._sockets),
                needed,
                self._limits.max_sockets,
            )


async def _nowhere(_host: str) -> tuple[str, ...]:
    return ()


def _names(source: EventSource) -> Iterable[str]:
    """Hosts of the source that have to be looked up, each once."""
    own = "" if source.is_bound else host_of(source.endpoint)
    return filter(_is_name, dict.fromkeys((own, host_of(source.replay_endpoint or ""))))


def _is_name(host: str) -> bool:
    """Is there a name to look up? What is neither name nor address is left for ZeroMQ to refuse."""
    return _NAME.fullmatch(host) is not None and not is_address(host)


def _make_context(limits: SocketLimits) -> _Context:
    context: _Context = zmq.Context(limits.io_threads)
    context.set(zmq.MAX_SOCKETS, limits.max_sockets)
    return context
