"""A subscriber that runs, over real sockets on loopback."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from indexer import Backlog, EventSubscriber, Intake, SocketLimits, StreamLimits, Trust
from indexer.name_lookups import Resolve
from protocol import EventSource
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.indexer.set_sink import SetSink

QUICK = SocketLimits(tick_s=0.02, reconnect_s=0.01, reconnect_max_s=0.05, reopen_s=0.05)


class Fleet:
    """A running subscriber, its sink, and publishers that are closed at the end."""

    def __init__(
        self,
        limits: SocketLimits,
        stream_limits: StreamLimits,
        resolve: Resolve | None = None,
        sink: SetSink | None = None,
    ) -> None:
        self.changes = Changes()
        self.sink = SetSink() if sink is None else sink
        self.sink.on_change = self.changes.note
        backlog = Backlog(self.sink)
        self.intake = Intake(backlog, stream_limits)
        self.subscriber = EventSubscriber(
            self.intake, self._clock, limits=limits, backlog=backlog, resolve=resolve
        )
        self.passed_s = 0.0
        self._publishers: list[LoopbackPublisher] = []

    def _clock(self) -> float:
        self.changes.note()  # whoever waits looks again at every tick
        return time.monotonic() + self.passed_s

    def publisher(
        self,
        ports: tuple[int, int] = (0, 0),
        *,
        stamp: float = 0.0,
        host: str = "127.0.0.1",
        has_topic_frame: bool = True,
        answers: bool = True,
    ) -> LoopbackPublisher:
        publisher = LoopbackPublisher(
            self.changes,
            ports,
            stamp=stamp,
            host=host,
            has_topic_frame=has_topic_frame,
            answers=answers,
        )
        self._publishers.append(publisher)
        return publisher

    async def close(self, publisher: LoopbackPublisher) -> None:
        """End a publisher and wait until that was noticed."""
        self._publishers.remove(publisher)
        publisher.close()

    async def subscribed(self, publisher: LoopbackPublisher) -> None:
        await self.changes.until(lambda: publisher.num_subscribers > 0)

    def count(self, name: str) -> int:
        """A counter of the sockets."""
        return self.subscriber.traffic().overall[name]

    async def claims(self, source: EventSource, *blocks: int) -> None:
        """Wait until exactly these blocks are claimed."""
        await self.changes.until(lambda: self.sink.claims[source.rank] == set(blocks))

    async def trust(self, source: EventSource, trust: Trust) -> None:
        await self.changes.until(lambda: self.sink.trust.get(source.rank) is trust)

    def await_reply(self, source: EventSource) -> None:
        """Block the loop until a reply is there, or everything was taken already."""
        sockets = self.subscriber._table.sockets(source)
        if sockets is not None and sockets.replay._socket is not None:
            sockets.replay._socket.poll(1000)

    def close_publishers(self) -> None:
        for publisher in self._publishers:
            publisher.close()


@asynccontextmanager
async def running(
    limits: SocketLimits = QUICK,
    stream_limits: StreamLimits | None = None,
    resolve: Resolve | None = None,
    sink: SetSink | None = None,
) -> AsyncIterator[Fleet]:
    """A fleet whose subscriber runs."""
    fleet = Fleet(limits, stream_limits or StreamLimits(), resolve, sink)
    task = asyncio.ensure_future(fleet.subscriber.run())
    try:
        yield fleet
        assert not task.done(), task
        fleet.intake.check()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        fleet.close_publishers()
