"""The subscriber over real sockets on loopback."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
import zmq

from indexer import EventSubscriber, ForgetReason, Intake, SocketLimits, StreamLimits, Trust
from protocol import EventSource, Rank, WorkerId
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.indexer.set_sink import SetSink

QUICK = SocketLimits(tick_s=0.02, reconnect_s=0.01, reconnect_max_s=0.05, reopen_s=0.05)


class Fleet:
    """A running subscriber, its sink, and publishers that are closed at the end."""

    def __init__(self, limits: SocketLimits, stream_limits: StreamLimits) -> None:
        self.changes = Changes()
        self.sink = SetSink(self.changes.note)
        self.intake = Intake(self.sink, stream_limits)
        self.subscriber = EventSubscriber(self.intake, self._clock, limits=limits)
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

    async def claims(self, source: EventSource, *blocks: int) -> None:
        """Wait until exactly these blocks are claimed."""
        await self.changes.until(lambda: self.sink.claims[source.rank] == set(blocks))

    async def trust(self, source: EventSource, trust: Trust) -> None:
        await self.changes.until(lambda: self.sink.trust.get(source.rank) is trust)

    def await_reply(self, source: EventSource) -> None:
        """Block the loop until a reply is there, or everything was taken already."""
        sockets = self.subscriber._sockets[source]
        if sockets is not None and sockets._replay is not None:
            sockets._replay.poll(1000)

    def close_publishers(self) -> None:
        for publisher in self._publishers:
            publisher.close()


@asynccontextmanager
async def running(
    limits: SocketLimits = QUICK, stream_limits: StreamLimits | None = None
) -> AsyncIterator[Fleet]:
    """A fleet whose subscriber runs."""
    fleet = Fleet(limits, stream_limits or StreamLimits())
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


async def _replays_what_was_withheld(*, has_topic_frame: bool) -> None:
    async with running() as fleet:
        publisher = fleet.publisher(has_topic_frame=has_topic_frame)
        for block in range(3):
            publisher.publish(block)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.claims(source, 0, 1, 2)
        await fleet.subscribed(publisher)
        publisher.publish(3)
        await fleet.claims(source, 0, 1, 2, 3)
        publisher.publish(4, is_withheld=True)
        publisher.publish(5, is_withheld=True)
        publisher.publish(6)
        await fleet.claims(source, *range(7))
        await fleet.trust(source, Trust.EXACT)
        assert publisher.requests[0] == 0
        assert 4 in publisher.requests
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.losses, status.counters.num_resets) == (0, 0)


@pytest.mark.parametrize("has_topic_frame", [True, False])
async def test_what_was_withheld_is_replayed(has_topic_frame: bool) -> None:
    await _replays_what_was_withheld(has_topic_frame=has_topic_frame)


def test_it_runs_under_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_replays_what_was_withheld(has_topic_frame=True))


async def test_recorded_frames_of_an_engine(golden: Path) -> None:
    path = golden / "sglang" / "zmq_frames_sglang_0.5.23.json"
    if not path.exists():
        pytest.skip("no frame recording there")
    live = json.loads(path.read_text())["default_topic"]["live"]
    async with running() as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w", has_replay=False)
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        for frames in live:
            publisher.send([bytes.fromhex(frame) for frame in frames])
        await fleet.changes.until(lambda: len(fleet.sink.batches) == len(live))
        assert fleet.sink.trust[source.rank] is Trust.EXACT
        assert not fleet.sink.claims[source.rank], "the last one is a clear"


async def test_a_restart_at_the_same_address_without_replay() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w", has_replay=False)
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        for block in range(10):
            publisher.publish(block)
        await fleet.claims(source, *range(10))
        await fleet.close(publisher)
        restarted = fleet.publisher(publisher.ports, stamp=1e6)
        await fleet.subscribed(restarted)
        restarted.publish(77)
        await fleet.claims(source, 77)
        assert fleet.sink.forgets == [(source.rank, ForgetReason.RESTARTED)]
        assert fleet.sink.trust[source.rank] is Trust.EXACT


async def test_a_restart_that_has_passed_the_old_number_is_found_by_comparison() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        for block in (1, 2, 3):
            publisher.publish(block)
        await fleet.claims(source, 1, 2, 3)
        await fleet.trust(source, Trust.EXACT)
        await fleet.close(publisher)
        restarted = fleet.publisher(publisher.ports, stamp=1e6)
        for block in (11, 12, 13):
            restarted.publish(block, is_withheld=True)
        await fleet.subscribed(restarted)
        restarted.publish(14)
        await fleet.claims(source, 11, 12, 13, 14)
        await fleet.trust(source, Trust.EXACT)


async def test_a_replay_that_hangs_is_given_up() -> None:
    async with running(stream_limits=StreamLimits(replay_timeout_s=0.1)) as fleet:
        publisher = fleet.publisher(answers=False)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        await fleet.trust(source, Trust.NONE)
        publisher.publish(0)
        await fleet.claims(source, 0)
        publisher.publish(1, is_withheld=True)
        publisher.publish(2)
        await fleet.claims(source, 0, 2)
        await fleet.trust(source, Trust.DEGRADED)


async def test_a_backlog_waits_until_the_replay_has_made_room() -> None:
    limits = SocketLimits(messages_per_turn=4, tick_s=0.02)
    async with running(limits, StreamLimits(hold_batches=8)) as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(0)
        await fleet.claims(source, 0)
        publisher.publish(1, is_withheld=True)
        for block in range(2, 300):
            publisher.publish(block)
        await fleet.claims(source, *range(300))
        await fleet.trust(source, Trust.EXACT)
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.hold_overflows, status.counters.losses) == (0, 0)


async def test_a_backlog_goes_on_after_a_replay_that_hangs() -> None:
    limits = SocketLimits(messages_per_turn=4, tick_s=0.02)
    stream_limits = StreamLimits(hold_batches=8, replay_timeout_s=0.1)
    async with running(limits, stream_limits) as fleet:
        publisher = fleet.publisher(answers=False)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        await fleet.trust(source, Trust.NONE)
        publisher.publish(0)
        publisher.publish(1, is_withheld=True)
        for block in range(2, 100):
            publisher.publish(block)
        await fleet.claims(source, 0, *range(2, 100))
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.hold_overflows, status.counters.lost_batches) == (0, 1)


async def test_replies_that_came_while_the_loop_was_busy_are_no_silence() -> None:
    async with running(SocketLimits(tick_s=3600.0)) as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(0)
        await fleet.claims(source, 0)
        await fleet.trust(source, Trust.EXACT)
        publisher.publish(1, is_withheld=True)
        publisher.publish(2)
        await fleet.changes.until(lambda: 1 in publisher.requests)
        fleet.await_reply(source)
        fleet.passed_s = 10.0
        fleet.subscriber.tick()
        await fleet.claims(source, 0, 1, 2)
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.replays_failed, status.counters.losses) == (0, 0)


async def test_a_publisher_that_comes_late_is_found() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        ports = publisher.ports
        await fleet.close(publisher)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        late = fleet.publisher(ports)
        late.publish(5)
        await fleet.claims(source, 5)
        await fleet.trust(source, Trust.EXACT)


async def test_a_source_that_is_unsubscribed_is_heard_no_more() -> None:
    async with running() as fleet:
        one, other = fleet.publisher(), fleet.publisher()
        gone, kept = one.source("gone"), other.source("kept")
        for source in (gone, kept, kept):
            fleet.subscriber.subscribe(source)
        one.publish(1)
        other.publish(2)
        await fleet.claims(gone, 1)
        await fleet.claims(kept, 2)
        fleet.subscriber.unsubscribe(gone)
        fleet.subscriber.unsubscribe(gone)
        await fleet.changes.until(lambda: one.num_subscribers == 0)
        one.publish(3)
        other.publish(4)
        await fleet.claims(kept, 2, 4)
        assert not fleet.sink.claims[gone.rank]
        fleet.subscriber.subscribe(gone)
        await fleet.claims(gone, 1, 3)


async def test_sources_can_be_subscribed_before_it_runs() -> None:
    changes = Changes()
    sink = SetSink(changes.note)
    publisher = LoopbackPublisher(changes)
    publisher.publish(1)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    subscriber = EventSubscriber(Intake(sink), time.monotonic, context, QUICK)
    source = publisher.source("w")
    dropped = EventSource(Rank(WorkerId("x")), "tcp://127.0.0.1:1")
    subscriber.subscribe(source)
    subscriber.subscribe(dropped)
    subscriber.unsubscribe(dropped)
    task = asyncio.ensure_future(subscriber.run())
    await changes.until(lambda: sink.claims[source.rank] == {1})
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    publisher.close()
    context.term()  # returns, for no socket is left open


async def test_a_bad_endpoint_is_counted_and_harms_nobody() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        good = publisher.source("good")
        publisher.publish(1)
        for number, endpoint in enumerate(["tcp://*:5557", "nonsense", "tcp://127.0.0.1:port"]):
            bad = EventSource(Rank(WorkerId(f"bad{number}")), endpoint)
            fleet.subscriber.subscribe(bad)
        fleet.subscriber.subscribe(good)
        await fleet.claims(good, 1)
        await fleet.changes.until(lambda: fleet.subscriber.counters.open_failures >= 6)


async def test_more_sources_than_sockets_are_counted_and_tried_again() -> None:
    limits = SocketLimits(max_sockets=4, tick_s=0.02, reopen_s=0.05)
    async with running(limits) as fleet:
        one, other = fleet.publisher(), fleet.publisher()
        first = one.source("first", has_replay=False)
        second = other.source("second", has_replay=False)
        fleet.subscriber.subscribe(first)
        await fleet.subscribed(one)
        fleet.subscriber.subscribe(second)
        assert fleet.subscriber.counters.open_failures == 1
        one.publish(1)
        await fleet.claims(first, 1)
        fleet.subscriber.unsubscribe(first)
        await fleet.subscribed(other)
        other.publish(2)
        await fleet.claims(second, 2)


async def test_a_bad_replay_endpoint_is_a_loss() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        right = publisher.source("w")
        source = EventSource(right.rank, right.endpoint, "tcp://*:1")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(1)
        await fleet.claims(source, 1)
        publisher.publish(2, is_withheld=True)
        publisher.publish(3)
        await fleet.claims(source, 1, 3)
        assert fleet.subscriber.counters.ask_failures > 0
        traffic = fleet.subscriber.traffic()
        assert (traffic.overall["messages"], traffic.overall["stray_messages"]) == (2, 0)
        assert traffic.by_rank[source.rank]["connects"] == 1


async def test_a_flood_leaves_others_their_turn() -> None:
    limits = SocketLimits(messages_per_turn=4, tick_s=0.02)
    num_flood = 3000
    async with running(limits) as fleet:
        flood, calm = fleet.publisher(), fleet.publisher()
        loud, quiet = flood.source("loud"), calm.source("quiet")
        fleet.subscriber.subscribe(loud)
        fleet.subscriber.subscribe(quiet)
        for publisher in (flood, calm):
            await fleet.subscribed(publisher)
        await fleet.trust(loud, Trust.EXACT)
        await fleet.trust(quiet, Trust.EXACT)
        for block in range(num_flood // 2):
            flood.publish(block)
        calm.publish(7)
        for block in range(num_flood // 2):
            flood.publish(block)
        await fleet.claims(quiet, 7)
        heard = sum(rank == loud.rank for rank, _ in fleet.sink.batches)
        assert heard < num_flood


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 loopback on this machine")
async def test_ipv6_addresses() -> None:
    async with running() as fleet:
        publisher = fleet.publisher(host="[::1]")
        publisher.publish(1)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.claims(source, 1)
        await fleet.trust(source, Trust.EXACT)


async def test_names_are_tried_in_both_address_families() -> None:
    limits = SocketLimits(tick_s=0.02, reopen_s=0.05, other_family_s=0.1)
    async with running(limits) as fleet:
        source = EventSource(Rank(WorkerId("w")), "tcp://localhost:1")
        fleet.subscriber.subscribe(source)
        await fleet.changes.until(lambda: fleet.subscriber.counters.other_families >= 2)


class Forwarder:
    """A TCP forwarder that can fall silent without closing anything."""

    def __init__(self) -> None:
        self.target = 0
        self.is_silent = False
        self.server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        is_silent = self.is_silent
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                if self.is_silent and not is_silent:
                    continue  # swallowed, in both directions
                target.write(data)

        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            writer.close()
            back.close()


async def test_a_half_open_connection_is_given_up() -> None:
    """The path swallows all packets; a new publisher stands elsewhere under the same address."""
    limits = SocketLimits(tick_s=0.02, heartbeat_s=0.05, heartbeat_timeout_s=0.15, reconnect_s=0.01)
    async with running(limits) as fleet:
        publisher = fleet.publisher()
        forwarder = Forwarder()
        forwarder.target = publisher.ports[0]
        port = await forwarder.start()
        source = EventSource(Rank(WorkerId("w")), f"tcp://127.0.0.1:{port}")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(1)
        await fleet.claims(source, 1)
        elsewhere = fleet.publisher(stamp=1e6)
        forwarder.target = elsewhere.ports[0]
        forwarder.is_silent = True
        await fleet.subscribed(elsewhere)
        elsewhere.publish(2)
        await fleet.claims(source, 2)
        assert fleet.sink.forgets == [(source.rank, ForgetReason.RESTARTED)]
        await forwarder.stop()
