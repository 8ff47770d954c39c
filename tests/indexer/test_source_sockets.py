"""Sockets of one publisher: what arrives is queued in the order in which it happened."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import zmq

from indexer.socket_limits import SocketLimits
from indexer.source_sockets import Change, SourceSockets
from protocol import EventSource, Rank, WorkerId
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.indexer.raw_publisher import RawPublisher

LIMITS = SocketLimits(reconnect_s=0.01, reconnect_max_s=0.05)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)


def _shape(sockets: SourceSockets) -> list[str | int]:
    """What is pending: changes by name, messages by number."""
    return [
        str(item) if isinstance(item, Change) else int.from_bytes(item[1], "big")
        for item in sockets.pending
    ]


async def test_what_a_broken_connection_brought_comes_before_the_break(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    sockets = SourceSockets(context, publisher.source("w"), LIMITS, lambda _: changes.note(), 0)
    await changes.until(lambda: publisher.num_subscribers)
    for block in range(3):
        publisher.publish(block)
    publisher.close()

    def is_broken() -> bool:
        sockets.collect()
        return Change.DISCONNECTED in sockets.pending

    await changes.until(is_broken)
    shape = _shape(sockets)
    received = [item for item in shape if isinstance(item, int)]
    assert shape == ["connected", *received, "disconnected"]
    assert not sockets.is_connected
    sockets.close()


@pytest.mark.parametrize("is_crowded", [False, True])
async def test_what_came_before_a_break_is_received_turn_by_turn(
    context: zmq.Context[zmq.Socket[bytes]], is_crowded: bool
) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    limits = replace(LIMITS, messages_per_turn=2)
    sockets = SourceSockets(context, publisher.source("w"), limits, lambda _: changes.note(), 0)
    await changes.until(lambda: publisher.num_subscribers)
    for block in range(7):
        publisher.publish(block)
    sockets._live.poll(1000)
    publisher.close()
    turns: list[int] = []

    def is_broken() -> bool:
        before = len(sockets.pending)
        is_drained = sockets.collect(is_crowded=is_crowded)
        turns.append(sum(isinstance(item, list) for item in list(sockets.pending)[before:]))
        if not is_drained:
            changes.note()
        return Change.DISCONNECTED in sockets.pending

    await changes.until(is_broken)
    assert _shape(sockets) == ["connected", *range(sum(turns)), "disconnected"]
    assert max(turns) <= 2
    sockets.close()


async def test_messages_that_can_wait_stay_where_they_are(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    sockets = SourceSockets(context, publisher.source("w"), LIMITS, lambda _: changes.note(), 0)
    await changes.until(lambda: publisher.num_subscribers)
    publisher.publish(0)
    sockets._live.poll(1000)
    assert sockets.collect(is_crowded=True)
    assert _shape(sockets) == ["connected"]
    assert sockets.collect()
    assert _shape(sockets) == ["connected", 0]
    sockets.close()
    publisher.close()


async def test_a_break_that_is_noticed_late_comes_before_all_messages(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    sockets = SourceSockets(context, publisher.source("w"), LIMITS, lambda _: changes.note(), 0)
    await changes.until(lambda: publisher.num_subscribers)
    for block in range(3):
        publisher.publish(block)
    publisher.close()
    restarted = LoopbackPublisher(changes, publisher.ports)

    def is_subscribed_again() -> bool:
        sockets._live.get(zmq.EVENTS)  # lets ZeroMQ subscribe, takes no message
        return restarted.num_subscribers > 0

    await changes.until(is_subscribed_again)
    restarted.publish(7)

    def has_message() -> bool:
        sockets.collect()
        return any(isinstance(item, list) for item in sockets.pending)

    await changes.until(has_message)
    assert _shape(sockets)[:3] == ["connected", "disconnected", "connected"]
    assert sockets.is_connected
    sockets.close()
    restarted.close()


async def test_a_turn_takes_no_more_than_its_share(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    limits = replace(LIMITS, messages_per_turn=2)
    sockets = SourceSockets(context, publisher.source("w"), limits, lambda _: changes.note(), 0)
    await changes.until(lambda: publisher.num_subscribers)
    for block in range(5):
        publisher.publish(block)
    sizes = []

    def has_all() -> bool:
        before = len(sockets.pending)
        sockets.collect()
        sizes.append(sum(isinstance(item, list) for item in list(sockets.pending)[before:]))
        if sizes[-1]:
            changes.note()
        return sum(sizes) == 5

    await changes.until(has_all)
    assert max(sizes) == 2
    sockets.close()
    publisher.close()


async def test_a_new_conversation_ends_the_one_before(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    for block in range(3):
        publisher.publish(block)
    sockets = SourceSockets(context, publisher.source("w"), LIMITS, lambda _: changes.note(), 0)
    sockets.replay.ask(0)
    await changes.until(lambda: publisher.requests == [0])
    sockets.replay.ask(2)
    replies: list[list[bytes]] = []

    def is_over() -> bool:
        while (frames := sockets.next_reply()) is not None:
            replies.append(frames)
        return bool(replies) and replies[-1][2] == b"\xff" * 8

    await changes.until(is_over)
    assert [int.from_bytes(frames[2], "big") for frames in replies[:-1]] == [2]
    sockets.replay.end()
    assert sockets.next_reply() is None
    assert not sockets.replay.is_open
    sockets.close()
    sockets.close()
    publisher.close()


async def test_the_address_of_a_name_takes_its_place(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """On the live socket and in replays, whose host may be another one."""
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    publisher.publish(0)
    live, replay = publisher.ports
    source = EventSource(
        Rank(WorkerId("w")), f"tcp://live.invalid:{live}", f"tcp://replay.invalid:{replay}"
    )
    known = {"live.invalid": "127.0.0.1", "replay.invalid": "127.0.0.1"}
    sockets = SourceSockets(
        context, source, LIMITS, lambda _: changes.note(), 0, address_of=known.get
    )
    assert sockets.address == "127.0.0.1"
    await changes.until(lambda: publisher.num_subscribers)
    sockets.replay.ask(0)
    await changes.until(lambda: publisher.requests == [0])
    sockets.close()
    publisher.close()


async def test_a_source_without_replay_cannot_be_asked(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    source = EventSource(Rank(WorkerId("w")), "tcp://127.0.0.1:1")
    sockets = SourceSockets(context, source, LIMITS, lambda _: None, 0)
    with pytest.raises(zmq.ZMQError):
        sockets.replay.ask(0)
    sockets.close()


async def test_long_messages_are_taken_a_few_at_a_time_and_wait_at_the_publisher(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """A publisher that is faster than its reader: what waits here is bounded by bytes."""
    changes, long_bytes, num_sent = Changes(), 64 << 10, 200
    limits = replace(LIMITS, live_bytes=8 * long_bytes, turn_bytes=2 * long_bytes)
    publisher = RawPublisher(changes)
    source = EventSource(Rank(WorkerId("w")), publisher.endpoint, None)
    sockets = SourceSockets(context, source, limits, lambda _: changes.note(), 0)
    await changes.until(lambda: publisher.num_subscribers)

    def is_heard() -> bool:
        sockets.collect()
        return any(isinstance(one, list) for one in sockets.pending)

    publisher.send(0, bytes(long_bytes))
    await changes.until(is_heard)
    sockets.pending.clear()
    for seq in range(1, num_sent):
        publisher.send(seq, bytes(long_bytes))
    assert sockets._room.num_messages <= limits.live_bytes // long_bytes
    await changes.until(is_heard)
    assert len(sockets.pending) <= 2
    sockets.close()
    publisher.close()
