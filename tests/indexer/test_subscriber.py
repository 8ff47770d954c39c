"""The subscriber over real sockets on loopback."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import uvloop
import zmq

from indexer import EventSubscriber, Intake, SocketLimits, StreamLimits, Trust
from protocol import EventSource, Rank, WorkerId
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.indexer.running_fleet import QUICK, running
from tests.indexer.set_sink import SetSink


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


BAD_ENDPOINTS = [
    "tcp://*:5557",
    "nonsense",
    "",
    "tcp://127.0.0.1:port",
    "tcp://127.0.0.1:99999",
    "tcp://\ud800:5557",
    "tcp://a\x00b:5557",
    "tcp://a b:5557",
]


async def test_a_bad_endpoint_is_counted_and_harms_nobody() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        good = publisher.source("good")
        publisher.publish(1)
        bad = [
            EventSource(Rank(WorkerId(f"bad{number}")), endpoint)
            for number, endpoint in enumerate(BAD_ENDPOINTS)
        ]
        bad.append(EventSource(Rank(WorkerId("topic")), good.endpoint, topic="\ud800"))
        for source in bad:
            fleet.subscriber.subscribe(source)
        fleet.subscriber.subscribe(good)
        await fleet.claims(good, 1)
        twice = 2 * (len(bad) - 1)  # a NUL ends the host in C, and "a" is one
        await fleet.changes.until(lambda: fleet.count("open_failures") >= twice)


async def test_bad_sources_that_are_there_before_it_runs_leave_no_socket() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    subscriber = EventSubscriber(Intake(SetSink(lambda: None)), time.monotonic, context)
    for number, endpoint in enumerate(BAD_ENDPOINTS):
        subscriber.subscribe(EventSource(Rank(WorkerId(f"bad{number}")), endpoint, topic="\ud800"))
    task = asyncio.ensure_future(subscriber.run())
    await asyncio.sleep(0)
    assert subscriber.traffic().overall["open_failures"] == len(BAD_ENDPOINTS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    context.term()


async def test_a_fault_of_its_own_ends_it_and_is_raised() -> None:
    """Whoever runs it hears of it; it does not wait for sockets that nobody closes."""
    times = iter([0.0, 0.0])
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    intake = Intake(SetSink(changes.note))
    limits = SocketLimits(tick_s=0.01)
    subscriber = EventSubscriber(intake, lambda: next(times), limits=limits)
    subscriber.subscribe(publisher.source("w"))
    async with asyncio.timeout(5):
        with pytest.raises(ExceptionGroup):
            await subscriber.run()
    publisher.close()


async def test_more_sources_than_sockets_are_counted_and_tried_again() -> None:
    limits = SocketLimits(max_sockets=4, tick_s=0.02, reopen_s=0.05)
    async with running(limits) as fleet:
        one, other = fleet.publisher(), fleet.publisher()
        first = one.source("first", has_replay=False)
        second = other.source("second", has_replay=False)
        fleet.subscriber.subscribe(first)
        await fleet.subscribed(one)
        fleet.subscriber.subscribe(second)
        assert fleet.count("open_failures") == 1
        one.publish(1)
        await fleet.claims(first, 1)
        fleet.subscriber.unsubscribe(first)
        await fleet.subscribed(other)
        other.publish(2)
        await fleet.claims(second, 2)


@pytest.mark.parametrize("endpoint", ["tcp://*:1", "tcp://\ud800:1", ""])
async def test_a_bad_replay_endpoint_is_a_loss(endpoint: str) -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        right = publisher.source("w")
        source = EventSource(right.rank, right.endpoint, endpoint)
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
