"""Sockets of a tap: everything that some sources send, as it comes, until nobody asks any more."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

import zmq

from indexer.listener import HeardSource, Listener
from indexer.socket_limits import DEFAULT_SOCKET_LIMITS
from indexer.socket_table import Sockets
from indexer.source_sockets import Change, SourceSockets
from indexer.watched_sockets import SOCKET_FAULTS, host_of
from kvroute.tap.heard import Heard
from kvroute.tap.narrator import Narrator
from protocol import EventSource

TICK_S = 0.25
LOOK_UP_S = 5.0
"""For the names of all hosts; one that is not found by then is left for ZeroMQ to look up."""


class ListenError(Exception):
    """An endpoint cannot be listened to. The message names it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing new for a while: time to look after oneself."""


Told = tuple[EventSource, Heard] | Tick


async def listen(
    sources: Sequence[EventSource], clock: Callable[[], float] = time.time
) -> AsyncGenerator[Told, None]:
    """Everything that the sources send, each in its own order, and a tick every quarter of a second.

    Closing the generator closes the sockets.

    Args:
        clock: wall clock, seconds since the epoch.

    Raises:
        ListenError: an endpoint is none.
    """
    ears = _Ears(sources, await addresses_of(sources), clock)
    try:
        while True:
            for source, heard in await ears.wait():
                yield source, heard
            yield Tick()
    finally:
        ears.close()


def told_by(
    sources: Sequence[EventSource], clock: Callable[[], float] = time.time
) -> aclosing[AsyncGenerator[Told, None]]:
    """``listen`` as a context that closes it."""
    return aclosing(listen(sources, clock))


async def addresses_of(
    sources: Sequence[EventSource],
    look_up: Callable[[str], Awaitable[str | None]] | None = None,
    timeout_s: float = LOOK_UP_S,
) -> Mapping[str, str]:
    """The first address of each host, of either family; those found in time.

    Args:
        look_up: host to its address; None asks the system.
    """
    endpoints = [one for source in sources for one in (source.endpoint, source.replay_endpoint)]
    hosts = {host_of(one) for one in endpoints if one is not None} - {"", "*"}
    found: dict[str, str] = {}

    async def find(host: str) -> None:
        address = await (look_up or _look_up)(host)
        if address is not None:
            found[host] = address

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            for host in hosts:
                group.create_task(find(host))
    return found


async def _look_up(host: str) -> str | None:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]) if found else None


class _Ears:
    """The sockets of all sources and who narrates them."""

    def __init__(
        self,
        sources: Sequence[EventSource],
        addresses: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._addresses = addresses
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, DEFAULT_SOCKET_LIMITS.max_sockets)
        self._awake = asyncio.Event()
        self._listeners: dict[str, Listener] = {}
        self._narrators: dict[Sockets, Narrator] = {}
        now = clock()
        try:
            for number, source in enumerate(sources):
                self._narrators[self._open(source, number)] = Narrator(source, now)
        except ListenError:
            self.close()
            raise

    async def wait(self) -> list[tuple[EventSource, Heard]]:
        """What came since the last time; after a tick at the latest, with what time alone tells."""
        try:
            async with asyncio.timeout(TICK_S):
                await self._awake.wait()
        except TimeoutError:
            return [
                (sockets.source, heard)
                for sockets, narrator in self._narrators.items()
                for heard in (
                    *self._hear(sockets, narrator),
                    *narrator.on_tick(self._clock()),
                )
            ]
        self._awake.clear()
        return [
            (sockets.source, heard)
            for sockets, narrator in self._narrators.items()
            for heard in self._hear(sockets, narrator)
        ]

    def close(self) -> None:
        """Close every socket, at once."""
        for sockets in self._narrators:
            sockets.close()
        for listener in self._listeners.values():
            listener.close()
        self._narrators.clear()
        self._context.destroy(linger=0)

    def _open(self, source: EventSource, number: int) -> Sockets:
        limits, address_of = DEFAULT_SOCKET_LIMITS, self._addresses.get
        try:
            if source.is_bound:
                listener = self._listeners.get(source.endpoint)
                if listener is None:
                    listener = Listener(self._context, source.endpoint, limits, f"bound-{number}")
                    self._listeners[source.endpoint] = listener
                return HeardSource(listener, source, self._wake, address_of)
            return SourceSockets(
                self._context, source, limits, self._wake, number, address_of=address_of
            )
        except SOCKET_FAULTS as error:
            raise ListenError(f"cannot listen to {source.endpoint!r}: {error}") from error

    def _wake(self, _: Sockets) -> None:
        self._awake.set()

    def _hear(self, sockets: Sockets, narrator: Narrator) -> list[Heard]:
        """One turn of a source: what the replay brought first, as it came first."""
        told: list[Heard] = []
        is_more = self._hear_replay(sockets, narrator, told)
        is_drained = sockets.collect()
        while sockets.pending:
            arrived, now = sockets.pending.popleft(), self._clock()
            match arrived:
                case list():
                    told += narrator.on_live(arrived, now)
                case Change.CONNECTED:
                    told += narrator.on_connected(now)
                case Change.DISCONNECTED:
                    told += narrator.on_disconnected(now)
        if narrator.begin_replay(self._clock()):
            told += self._ask(sockets, narrator)
        if sockets.replay.is_open and not narrator.is_replaying:
            sockets.replay.end()
        if is_more or not is_drained:
            self._awake.set()
        return told

    def _hear_replay(self, sockets: Sockets, narrator: Narrator, told: list[Heard]) -> bool:
        """Take a turn's share of the replies; True where more may be left."""
        for _ in range(DEFAULT_SOCKET_LIMITS.messages_per_turn):
            frames = sockets.next_reply()
            if frames is None:
                return False
            told += narrator.on_replay(frames, self._clock())
        return True

    def _ask(self, sockets: Sockets, narrator: Narrator) -> list[Heard]:
        try:
            sockets.replay.ask(0)
        except SOCKET_FAULTS as error:
            return narrator.on_replay_failed(str(error), self._clock())
        return []
