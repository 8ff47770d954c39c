"""Sockets of a tap: everything that some sources send, as it comes, until nobody asks any more."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import zmq

from indexer.source_sockets import (
    DEFAULT_SOCKET_LIMITS,
    SOCKET_FAULTS,
    Change,
    SourceSockets,
)
from kvroute.tap.heard import Heard
from kvroute.tap.narrator import Narrator
from protocol import EventSource

TICK_S = 0.25


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
    ears = _Ears(sources, clock)
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


class _Ears:
    """The sockets of all sources and who narrates them."""

    def __init__(self, sources: Sequence[EventSource], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, DEFAULT_SOCKET_LIMITS.max_sockets)
        self._awake = asyncio.Event()
        self._narrators: dict[SourceSockets, Narrator] = {}
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
        self._narrators.clear()
        self._context.destroy(linger=0)

    def _open(self, source: EventSource, number: int) -> SourceSockets:
        try:
            return SourceSockets(self._context, source, DEFAULT_SOCKET_LIMITS, self._wake, number)
        except SOCKET_FAULTS as error:
            raise ListenError(f"cannot listen to {source.endpoint!r}: {error}") from error

    def _wake(self, _: SourceSockets) -> None:
        self._awake.set()

    def _hear(self, sockets: SourceSockets, narrator: Narrator) -> list[Heard]:
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
        if sockets.is_asking and not narrator.is_replaying:
            sockets.end_replay()
        if is_more or not is_drained:
            self._awake.set()
        return told

    def _hear_replay(self, sockets: SourceSockets, narrator: Narrator, told: list[Heard]) -> bool:
        """Take a turn's share of the replies; True where more may be left."""
        for _ in range(DEFAULT_SOCKET_LIMITS.messages_per_turn):
            frames = sockets.next_reply()
            if frames is None:
                return False
            told += narrator.on_replay(frames, self._clock())
        return True

    def _ask(self, sockets: SourceSockets, narrator: Narrator) -> list[Heard]:
        try:
            sockets.ask(0)
        except SOCKET_FAULTS as error:
            return narrator.on_replay_failed(str(error), self._clock())
        return []
