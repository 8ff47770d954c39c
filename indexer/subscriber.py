"""The shell around the intake: sockets, one event loop, and time.

Each source has its sockets; whatever arrives is handed to the intake in bounded turns, one source after
the other, so that a flooding publisher cannot keep the loop. A message that takes longer than a turn is read
and told in several, and until then nothing more is taken from its source: the rest waits at the socket. One
task takes the turns, another one tells the time. There is no policy here: what is asked for was decided by
the intake. An exception that nobody expected costs the source that it came from, see `Failed`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TypeAlias, assert_never

import zmq

from indexer.actions import RequestReplay
from indexer.backlog import Backlog
from indexer.event_traffic import EventTraffic
from indexer.intake import Intake
from indexer.long_reading import LongReading
from indexer.name_lookups import Resolve
from indexer.socket_limits import DEFAULT_SOCKET_LIMITS, SocketLimits
from indexer.socket_table import Sockets, SocketTable
from indexer.source_counters import SourceCounters
from indexer.source_failures import Failed, SourceFailures
from indexer.source_sockets import Change
from indexer.watched_sockets import SOCKET_FAULTS
from protocol import EventSource, ScannedPayload

logger = logging.getLogger(__name__)

_Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
_SOURCE_COUNTERS = tuple(one.name for one in fields(SourceCounters))


@dataclass(slots=True)
class SubscriberCounters:
    """What the sockets did.

    Attributes:
        messages, replies: received.
        ask_failures: replays that could not be asked for.
    """

    messages: int = 0
    replies: int = 0
    ask_failures: int = 0


class EventSubscriber:
    """Listens to every subscribed source and feeds the intake.

    Args:
        intake: is told what is heard, on the event loop, and owns all decisions.
        clock: monotonic seconds.
        context: ZeroMQ context to use; None makes one for the time of ``run``, with room for
            ``limits.max_sockets``.
        resolve: looks names up; None takes the system's resolver.
        limits: bounds of sockets and turns.
        backlog: what the intake delivers to, if it tells long batches in parts.

    Attributes:
        counters: what the sockets did.
    """

    def __init__(
        self,
        intake: Intake,
        clock: Callable[[], float],
        context: _Context | None = None,
        limits: SocketLimits = DEFAULT_SOCKET_LIMITS,
        backlog: Backlog | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._intake = intake
        self._backlog = backlog
        self._readings: dict[EventSource, LongReading] = {}
        self._paused: set[EventSource] = set()
        self._clock = clock
        self._limits = limits
        self._table = SocketTable(limits, self._wake, intake.is_connected, context, resolve)
        self._ready: dict[Sockets, None] = {}  # in the order of their turns
        self._awake = asyncio.Event()
        self._reopen_at = 0.0
        self._failures = SourceFailures()
        self.counters = SubscriberCounters()

    def subscribe(self, source: EventSource) -> None:
        """Listen to ``source``, at once or as soon as ``run`` runs. Idempotent."""
        if source not in self._table:
            self._intake.add_source(source, self._clock())
            self._table.add(source)

    def unsubscribe(self, source: EventSource) -> None:
        """Stop listening; what is queued is dropped, the claims of its ranks too. Idempotent."""
        sockets = self._table.pop(source)
        if sockets is not None:
            self._close(sockets)
        self._readings.pop(source, None)
        self._paused.discard(source)
        self._failures.forget(source)
        self._intake.remove_source(source, self._clock())

    def pause(self, source: EventSource) -> None:
        """Take nothing from ``source`` until ``resume``: what comes waits at its socket, up to its bound."""
        self._paused.add(source)

    def is_paused(self, source: EventSource) -> bool:
        """Whether nothing is taken from ``source``."""
        return source in self._paused

    def is_reading(self, source: EventSource) -> bool:
        """Whether a message of ``source`` is being read in steps."""
        return source in self._readings

    def resume(self, source: EventSource) -> None:
        """Take what has come, and go on. Idempotent."""
        self._paused.discard(source)
        for open_source, sockets in self._table.open():
            if open_source == source:
                self._wake(sockets)

    async def run(self) -> None:
        """Listen until cancelled, then close every socket, whatever happened. To be called once."""
        try:
            async with asyncio.TaskGroup() as group:
                self._table.start(group)
                group.create_task(self._take_turns())
                group.create_task(self._tell_time())
        finally:
            self._ready.clear()
            self._table.close()

    async def _take_turns(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            while self._ready:
                self._take_some_turns()
                await asyncio.sleep(0)  # the loop looks at all ready sockets: not after each turn

    def _take_some_turns(self) -> None:
        """Turns of one source after the other, for as long as one may last."""
        deadline = self._clock() + self._limits.turn_s
        while self._ready:
            sockets = next(iter(self._ready))
            del self._ready[sockets]
            take = partial(self._take_turn, sockets, deadline)
            if not self._survive(sockets.source, take):
                self._ready[sockets] = None
            if self._clock() >= deadline:
                return

    def _take_turn(self, sockets: Sockets, deadline: float) -> bool:
        """Handle some of what has arrived; False where more is left.

        Replies come first: they make room for the live messages that are held until then.
        """
        if sockets.is_closed or sockets.source in self._paused:
            return True
        if not self._work(sockets, deadline):
            return False
        are_replies_taken = self._take_replies(sockets, deadline)
        return not self._is_busy(sockets.source) and (
            self._take_live(sockets, deadline) and are_replies_taken
        )

    def _is_busy(self, source: EventSource) -> bool:
        """Whether a message of the source is still to be read, or to be told."""
        return self._is_behind(source) or source in self._readings

    def _is_behind(self, source: EventSource) -> bool:
        return self._backlog is not None and self._backlog.is_behind(source.rank.worker)

    def _work(self, sockets: Sockets, deadline: float) -> bool:
        """Read and tell on what is under way; False where more is left."""
        source, now = sockets.source, self._clock()
        while self._is_busy(source) and now < deadline:
            if self._is_behind(source):
                self._tell_part(sockets, now)
            elif self._is_read(source):
                message = self._readings.pop(source)
                self._hear(sockets, message.frames(), is_live=message.is_live)
            now = self._clock()
        return not self._is_busy(source)

    def _tell_part(self, sockets: Sockets, now: float) -> None:
        assert self._backlog is not None
        source, work = sockets.source, self._backlog.work
        if self._failures.guard(source, Failed.PART, work, source.rank.worker, now) is None:
            self._ask(sockets, self._intake.on_failure(source, now))

    def _is_read(self, source: EventSource) -> bool:
        """Read a part of what is being read; whether it is read to its end, or cannot be."""
        message = self._readings[source]
        where = Failed.LIVE if message.is_live else Failed.REPLY
        return self._failures.guard(source, where, message.proceed) is not False

    def _hear(self, sockets: Sockets, frames: list[bytes], *, is_live: bool) -> None:
        """Hand on a message; where that fails it is one that cannot be read, and claims are in doubt."""
        source, now, intake = sockets.source, self._clock(), self._intake
        hear = intake.on_live if is_live else intake.on_replay
        where = Failed.LIVE if is_live else Failed.REPLY
        requests = self._failures.guard(source, where, hear, source, frames, now)
        if requests is None:
            requests = hear(source, [*frames[:-1], ScannedPayload(frames[-1], None)], now)
            requests += intake.on_failure(source, now)
        self._ask(sockets, requests)

    def _begin(self, source: EventSource, frames: list[bytes], *, is_live: bool) -> bool:
        """Begin to read a message in steps, if it is a long one."""
        if len(frames[-1]) < self._limits.long_bytes:
            return False
        self._readings[source] = LongReading(frames, is_live=is_live)
        return True

    def _take_live(self, sockets: Sockets, deadline: float) -> bool:
        """Handle live messages and changes; messages beyond what can be held wait for replies or a tick."""
        was_crowded = self._intake.is_crowded(sockets.source)
        is_drained = not sockets.pending and sockets.collect(is_crowded=was_crowded)
        while sockets.pending:
            self._handle(sockets, sockets.pending.popleft())
            if not self._work(sockets, deadline) or self._clock() >= deadline:
                return False
        return is_drained and self._intake.is_crowded(sockets.source) is was_crowded

    def _handle(self, sockets: Sockets, arrived: list[bytes] | Change) -> None:
        source, now = sockets.source, self._clock()
        match arrived:
            case list():
                self.counters.messages += 1
                if not self._begin(source, arrived, is_live=True):
                    self._hear(sockets, arrived, is_live=True)
            case Change.CONNECTED:
                logger.debug("connected to %s", source.endpoint)
                self._ask(sockets, self._intake.on_connected(source, now))
            case Change.DISCONNECTED:
                logger.debug("lost the connection to %s", source.endpoint)
                self._ask(sockets, self._intake.on_disconnected(source, now))
            case _:
                assert_never(arrived)

    def _take_replies(self, sockets: Sockets, deadline: float) -> bool:
        for _ in range(self._limits.messages_per_turn):
            frames = sockets.next_reply()
            if frames is None:
                return True
            self.counters.replies += 1
            if not self._begin(sockets.source, frames, is_live=False):
                self._hear(sockets, frames, is_live=False)
            if not self._work(sockets, deadline) or self._clock() >= deadline:
                return False
        return False

    def _ask(self, sockets: Sockets, requests: Sequence[RequestReplay]) -> None:
        """Send what the intake asks for, close the conversation that it no longer needs."""
        source = sockets.source
        while requests:
            try:
                sockets.replay.ask(requests[-1].first_seq)
                return
            except SOCKET_FAULTS as error:
                self.counters.ask_failures += 1
                logger.warning("cannot ask %r for a replay: %s", source.replay_endpoint, error)
                sockets.replay.end()
                requests = self._intake.on_replay_failed(source, self._clock())
        if sockets.replay.is_open and not self._intake.is_replaying(source):
            sockets.replay.end()

    async def _tell_time(self) -> None:
        while True:
            await asyncio.sleep(self._limits.tick_s)
            self.tick()

    def traffic(self) -> EventTraffic:
        """Everything that was counted, beside what streams count themselves."""
        failures = {one.rank: self._failures.counts(one) for one in self._intake.sources}
        return EventTraffic(
            asdict(self.counters)
            | asdict(self._table.traffic())
            | {
                "stray_messages": self._intake.num_stray_messages,
                "failures": self._failures.num_all,
            },
            {
                rank: {name: getattr(counters, name) for name in _SOURCE_COUNTERS} | failures[rank]
                for rank, counters in self._intake.source_counters().items()
            },
        )

    def tick(self) -> None:
        """Tell the time, after what was heard before it. ``run`` does it every ``tick_s``."""
        self._hear_replies()
        now = self._clock()
        for source in self._intake.sources:
            self._survive(source, partial(self._tick, source, now))
        if now >= self._reopen_at:
            self._reopen_at = now + self._limits.reopen_s
            self._table.try_again()

    def _tick(self, source: EventSource, now: float) -> bool:
        """Time passes for a source; nothing is too late while one of its messages is being read."""
        requests = [] if source in self._readings else self._intake.on_tick_of(source, now)
        sockets = self._table.sockets(source)
        if sockets is not None:
            self._ask(sockets, requests)
        return True

    def _hear_replies(self) -> None:
        """What came while the loop was busy is no silence; whoever waits for a replay gets a turn."""
        for source, sockets in self._table.open():
            if sockets.replay.is_open and not sockets.is_closed:
                if source not in self._readings:
                    take = partial(self._take_replies, sockets, deadline=self._clock())
                    self._survive(source, take)
                self._wake(sockets)

    def _survive(self, source: EventSource, act: Callable[[], bool]) -> bool:
        """Do something for one source; where that fails it begins anew, and nothing is left to do."""
        done = self._failures.guard(source, Failed.SOURCE, act)
        if done is None and source in self._table:
            self._begin_anew(source)
        return done is not False

    def _begin_anew(self, source: EventSource) -> None:
        """Drop what is known by a source, and open it again with those that could not be opened."""
        self._readings.pop(source, None)
        sockets, now, guard = self._table.lose(source), self._clock(), self._failures.guard
        if sockets is not None:
            guard(source, Failed.SOURCE, self._close, sockets)
        guard(source, Failed.SOURCE, self._intake.remove_source, source, now)
        guard(source, Failed.SOURCE, self._intake.add_source, source, now)

    def _close(self, sockets: Sockets) -> None:
        self._ready.pop(sockets, None)
        sockets.close()

    def _wake(self, sockets: Sockets) -> None:
        if not sockets.is_closed:
            self._ready[sockets] = None
            self._awake.set()
