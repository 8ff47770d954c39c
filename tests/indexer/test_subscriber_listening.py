"""Publishers that connect to an endpoint of ours, over real sockets: who is who, who is there, who came anew."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import zmq

from indexer import ForgetReason, SocketLimits, StreamLimits, Trust
from indexer.listener import HeardSource, Listener, topic_parts
from indexer.source_sockets import Change
from protocol import EventSource, Rank, WorkerId
from tests.indexer.loopback import Changes
from tests.indexer.raw_publisher import RawPublisher, buffered, payload
from tests.indexer.running_fleet import QUICK, Fleet, running


def free_endpoint() -> str:
    """A port that nothing listens on."""
    with zmq.Context() as context, context.socket(zmq.SUB) as probe:
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    return f"tcp://127.0.0.1:{port}"


def source(
    name: str, endpoint: str, replay: str | None = None, *, topic: str | None = None
) -> EventSource:
    """The worker as a listened one; its topic is its name, as engines are often told."""
    topic = f"kv@{name}" if topic is None else topic
    return EventSource(Rank(WorkerId(name)), endpoint, replay, topic, is_bound=True)


class Town:
    """A running fleet and publishers that are closed at its end."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.endpoint = free_endpoint()
        self._publishers: list[RawPublisher] = []

    async def publisher(
        self, batches: Sequence[tuple[int, bytes]] = (), *, endpoint: str | None = None
    ) -> RawPublisher:
        """One that is connected and subscribed to, with a buffer."""
        one = RawPublisher(
            self.fleet.changes, connect=[endpoint or self.endpoint], answer=buffered(batches)
        )
        self._publishers.append(one)
        await self.fleet.changes.until(lambda: one.num_subscribers > 0)
        return one

    def leave(self, publisher: RawPublisher) -> None:
        self._publishers.remove(publisher)
        publisher.close()

    def close(self) -> None:
        for publisher in self._publishers:
            publisher.close()


@asynccontextmanager
async def town(
    limits: SocketLimits = QUICK, stream_limits: StreamLimits | None = None
) -> AsyncIterator[Town]:
    async with running(limits, stream_limits) as fleet:
        one = Town(fleet)
        yield one
        one.close()


@pytest.mark.parametrize(
    ("topic", "parts"),
    [
        ("", ()),
        ("@", ()),
        ("kv", ("kv",)),
        ("kv@a", ("kv", "a")),
        ("kv@a@", ("kv", "a")),
        ("kv@a@model@x", ("kv", "a", "model", "x")),
    ],
)
def test_topics_have_parts(topic: str, parts: tuple[str, ...]) -> None:
    assert topic_parts(topic) == parts


async def test_workers_share_an_endpoint_and_are_told_apart_by_topic() -> None:
    """One worker's name begins another one's; a third is nobody that we know."""
    async with town() as one:
        names = ["gpu-1", "gpu-11", "10.0.0.1"]
        sources = [source(name, one.endpoint) for name in names]
        for listened in sources:
            one.fleet.subscriber.subscribe(listened)
        publishers = [await one.publisher() for _ in [*names, "stranger"]]
        for number, (name, publisher) in enumerate(
            zip([*names, "gpu-111"], publishers, strict=True)
        ):
            for seq in range(3):
                publisher.send(seq, payload(10 * number + seq), f"kv@{name}@llama".encode())
        for number, listened in enumerate(sources):
            await one.fleet.claims(listened, *range(10 * number, 10 * number + 3))
            assert one.fleet.sink.trust[listened.rank] is Trust.EXACT
        await one.fleet.changes.until(lambda: one.fleet.count("foreign_topics") == 3)


async def test_a_source_without_a_topic_hears_what_is_nobody_elses() -> None:
    async with town() as one:
        any_other, named = source("w", one.endpoint, topic=""), source("v", one.endpoint)
        for listened in (any_other, named):
            one.fleet.subscriber.subscribe(listened)
        publisher = await one.publisher()
        publisher.send(0, payload(1))
        publisher.send(0, payload(2), b"kv@v")
        await one.fleet.claims(any_other, 1)
        await one.fleet.claims(named, 2)


async def test_one_topic_is_one_workers() -> None:
    async with town() as one:
        first = source("w", one.endpoint, topic="kv")
        second = EventSource(Rank(WorkerId("v")), one.endpoint, None, "kv", is_bound=True)
        one.fleet.subscriber.subscribe(first)
        one.fleet.subscriber.subscribe(second)
        await one.fleet.changes.until(lambda: one.fleet.count("open_failures") >= 1)
        publisher = await one.publisher()
        publisher.send(0, payload(1), b"kv")
        await one.fleet.claims(first, 1)
        one.fleet.subscriber.unsubscribe(first)
        await one.fleet.changes.until(lambda: publisher.num_subscriptions == 2)
        publisher.send(1, payload(2), b"kv")
        await one.fleet.claims(second, 2)


async def test_a_worker_is_replayed_as_soon_as_somebody_connects() -> None:
    """Before it has said a word: it may be idle for long."""
    async with town() as one:
        batches = [(seq, payload(seq)) for seq in range(5)]
        publisher = RawPublisher(
            one.fleet.changes, connect=[one.endpoint], answer=buffered(batches)
        )
        listened = source("w", one.endpoint, publisher.replay_endpoint)
        one.fleet.subscriber.subscribe(listened)
        await one.fleet.claims(listened, *range(5))
        await one.fleet.trust(listened, Trust.EXACT)
        late = source("late", one.endpoint, publisher.replay_endpoint)
        one.fleet.subscriber.subscribe(late)
        await one.fleet.claims(late, *range(5))
        publisher.close()


async def test_a_restart_is_noticed_though_it_has_passed_the_old_number() -> None:
    """The neighbour on the same endpoint is not even asked."""
    async with town() as one:
        old_batches = [(seq, payload(seq)) for seq in range(3)]
        new_batches = [(seq, payload(10 + seq, stamp=1e6)) for seq in range(5)]
        neighbours = [(seq, payload(20 + seq)) for seq in range(3)]
        fixed = RawPublisher(one.fleet.changes)  # where replays are asked for, whoever runs
        fixed.answer = buffered(old_batches)
        other = RawPublisher(one.fleet.changes)
        other.answer = buffered(neighbours)
        listened = source("w", one.endpoint, fixed.replay_endpoint)
        neighbour = source("v", one.endpoint, other.replay_endpoint)
        for each in (listened, neighbour):
            one.fleet.subscriber.subscribe(each)
        old, beside = await one.publisher(), await one.publisher()
        for seq, body in old_batches:
            old.send(seq, body, b"kv@w@m")
        for seq, body in neighbours:
            beside.send(seq, body, b"kv@v@m")
        for each, first in ((listened, 0), (neighbour, 20)):
            await one.fleet.claims(each, first, first + 1, first + 2)
            await one.fleet.trust(each, Trust.EXACT)
        num_asked = len(other.requests)
        one.leave(old)
        await one.fleet.changes.until(lambda: not one.fleet.intake.is_connected(listened))
        assert one.fleet.intake.is_connected(neighbour)
        fixed.answer = buffered(new_batches)
        new = await one.publisher()
        new.send(4, new_batches[4][1], b"kv@w@m")
        await one.fleet.claims(listened, *range(10, 15))
        await one.fleet.trust(listened, Trust.EXACT)
        assert one.fleet.sink.forgets == [(listened.rank, ForgetReason.RESTARTED)]
        assert len(other.requests) == num_asked
        fixed.close()
        other.close()


async def test_a_crash_loop_of_one_leaves_the_others_alone() -> None:
    async with town() as one:
        calm, looping = source("calm", one.endpoint), source("looping", one.endpoint)
        for each in (calm, looping):
            one.fleet.subscriber.subscribe(each)
        steady = await one.publisher()
        steady.send(0, payload(0), b"kv@calm")
        await one.fleet.claims(calm, 0)
        for number in range(5):
            brief = await one.publisher()
            brief.send(0, payload(100 + number, stamp=1e6 * (number + 1)), b"kv@looping")
            await one.fleet.claims(looping, 100 + number)
            one.leave(brief)
            await one.fleet.changes.until(lambda: not one.fleet.intake.is_connected(looping))
            steady.send(number + 1, payload(number + 1), b"kv@calm")
            await one.fleet.claims(calm, *range(number + 2))
        counters = one.fleet.intake.source_counters()
        assert (counters[calm.rank].connects, counters[calm.rank].disconnects) == (1, 0)
        assert one.fleet.sink.trust[calm.rank] is Trust.EXACT


async def test_ranks_have_a_port_each() -> None:
    async with town() as one:
        endpoints = [one.endpoint, free_endpoint()]
        sources = [
            EventSource(Rank(WorkerId("w"), dp), endpoint, None, "kv@w", is_bound=True)
            for dp, endpoint in enumerate(endpoints)
        ]
        for each in sources:
            one.fleet.subscriber.subscribe(each)
        for dp, endpoint in enumerate(endpoints):
            publisher = await one.publisher(endpoint=endpoint)
            publisher.send(0, payload(dp), b"kv@w@m")
        for dp, each in enumerate(sources):
            await one.fleet.claims(each, dp)


async def test_a_port_that_is_taken_is_tried_again_and_harms_nobody() -> None:
    async with town() as one:
        holder = RawPublisher(one.fleet.changes)
        taken = source("w", holder.endpoint)
        free = source("v", one.endpoint)
        for each in (taken, free):
            one.fleet.subscriber.subscribe(each)
        publisher = await one.publisher()
        publisher.send(0, payload(1), b"kv@v")
        await one.fleet.claims(free, 1)
        await one.fleet.changes.until(lambda: one.fleet.count("open_failures") >= 2)
        endpoint = holder.endpoint
        holder.close()
        connected = await one.publisher(endpoint=endpoint)
        connected.send(0, payload(2), b"kv@w")
        await one.fleet.claims(taken, 2)


async def test_a_worker_that_leaves_frees_its_topic_and_at_last_the_port() -> None:
    async with town() as one:
        listened = source("w", one.endpoint)
        one.fleet.subscriber.subscribe(listened)
        publisher = await one.publisher()
        publisher.send(0, payload(1), b"kv@w")
        await one.fleet.claims(listened, 1)
        one.fleet.subscriber.unsubscribe(listened)
        one.fleet.subscriber.subscribe(listened)  # at once: the port is still bound
        assert one.fleet.count("open_failures") == 0
        await one.fleet.changes.until(lambda: publisher.num_subscriptions == 2)
        assert one.fleet.sink.claims[listened.rank] == set()
        one.fleet.subscriber.unsubscribe(listened)

        def is_unbound() -> bool:
            with zmq.Context() as context, context.socket(zmq.SUB) as probe:
                try:
                    probe.bind(one.endpoint)
                except zmq.ZMQError:
                    return False
                return True

        await one.fleet.changes.until(is_unbound)


async def test_a_backlog_of_one_worker_waits_apart_and_is_bounded() -> None:
    """Its replay hangs, so its messages cannot be applied: the neighbour's are, all the same."""
    limits = SocketLimits(tick_s=0.02, live_hwm=50, messages_per_turn=4)
    patient = StreamLimits(hold_batches=8, replay_timeout_s=3600.0)
    async with town(limits, patient) as one:
        silent = RawPublisher(one.fleet.changes)
        stuck = source("stuck", one.endpoint, silent.replay_endpoint)
        free = source("free", one.endpoint)
        for each in (stuck, free):
            one.fleet.subscriber.subscribe(each)
        publisher, other = await one.publisher(), await one.publisher()
        for seq in range(40):
            publisher.send(seq, payload(seq), b"kv@stuck")
            other.send(seq, payload(seq), b"kv@free")
        await one.fleet.claims(free, *range(40))
        for seq in range(40, 300):
            publisher.send(seq, payload(seq), b"kv@stuck")
        await one.fleet.changes.until(lambda: one.fleet.count("dropped") > 0)
        assert one.fleet.sink.trust[stuck.rank] is Trust.REBUILDING
        dropped = one.fleet.count("dropped")
        one.fleet.subscriber.unsubscribe(stuck)
        assert one.fleet.count("dropped") == dropped, "a count goes with its source"
        silent.close()


async def test_connections_that_change_all_the_time_are_bounded_as_messages_are() -> None:
    """Two publishers of one topic, and nobody who takes what they say: each message is a reconnect."""
    limits = SocketLimits(live_hwm=10, messages_per_turn=100)
    with zmq.Context() as context:
        listener = Listener(context, free_endpoint(), limits, "bound-0")
        heard = HeardSource(listener, source("w", listener.endpoint), lambda _: None)
        num_kept = 0
        for number in range(1_000):
            frames = [b"kv@w", number.to_bytes(8, "big"), b""]
            num_kept += heard.hear(frames, connection=number % 2)
        assert heard.collect()
        assert num_kept == sum(isinstance(one, list) for one in heard.pending)
        assert len(heard.pending) <= limits.live_hwm + 2
        assert list(heard.pending)[-2:] == [Change.DISCONNECTED, Change.CONNECTED]
        heard.close()
        listener.close()


async def test_what_waits_for_one_source_is_bounded_by_bytes() -> None:
    limits = SocketLimits(live_bytes=1_000)
    with zmq.Context() as context:
        listener = Listener(context, free_endpoint(), limits, "bound-0")
        heard = HeardSource(listener, source("w", listener.endpoint), lambda _: None)

        def is_kept(size_bytes: int) -> bool:
            return heard.hear([b"kv@w", bytes(8), bytes(size_bytes - 12)], connection=1)

        assert is_kept(5_000), "one is always kept"
        assert not is_kept(12)
        assert heard.collect()
        assert [is_kept(400), is_kept(400), is_kept(400), is_kept(200)] == [True, True, False, True]
        heard.close()
        listener.close()


async def test_long_messages_are_taken_a_few_at_a_time_and_wait_at_whoever_connects() -> None:
    """What waits at a listened socket is bounded by bytes as at any other."""
    changes, long_bytes = Changes(), 64 << 10
    limits = replace(QUICK, live_bytes=8 * long_bytes, turn_bytes=2 * long_bytes)
    with zmq.Context() as context:
        listener = Listener(context, free_endpoint(), limits, "bound-0")
        heard = HeardSource(listener, source("w", listener.endpoint), lambda _: changes.note())
        publisher = RawPublisher(changes, connect=[listener.endpoint])
        await changes.until(lambda: publisher.num_subscribers > 0)
        publisher.send(0, bytes(long_bytes), b"kv@w")
        await changes.until(lambda: heard.connection is not None)
        assert listener._room.num_messages <= limits.live_bytes // long_bytes
        for seq in range(1, 200):
            publisher.send(seq, bytes(long_bytes), b"kv@w")
        listener._live.poll(10_000)
        received, _ = listener._receive()
        assert 1 <= len(received) <= 2
        heard.close()
        listener.close()
        publisher.close()


async def test_a_connection_that_brings_nothing_is_none() -> None:
    with zmq.Context() as context:
        listener = Listener(context, free_endpoint(), QUICK, "bound-0")
        heard = HeardSource(listener, source("w", listener.endpoint), lambda _: None)
        for _ in range(3):
            heard.on_met()
            heard.on_broken()
        assert heard.collect()
        assert not heard.pending
        heard.on_met()
        heard.collect()
        for _ in range(3):
            heard.on_broken()
            heard.on_met()
        heard.collect()
        changes = [Change.CONNECTED, Change.DISCONNECTED, Change.CONNECTED]
        assert list(heard.pending) == changes
        heard.close()
        listener.close()


async def test_a_listener_without_sockets_leaves_none_open() -> None:
    with zmq.Context() as context:
        for endpoint in ("nonsense", "tcp://127.0.0.1:port", "tcp://192.0.2.1:5557"):
            with pytest.raises((zmq.ZMQError, ValueError)):
                Listener(context, endpoint, QUICK, "bound-0")
    await asyncio.sleep(0)  # the context has ended: nothing was open
