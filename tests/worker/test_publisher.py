"""Real sockets: frames equal to the engine's, replay, ports, and what is ignored."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from protocol import AllBlocksCleared, EventBatch, decode_batch
from tests.needs import lacking
from worker.batch_log import BatchLog
from worker.event_sockets import EventAddress, EventPortError, EventSockets
from worker.publisher import EventPublisher

SECTIONS = ("default_topic", "topic_kv_rank2", "buffer_steps_2")


def address(
    *, events_port: int | None = 0, replay_port: int | None = 0, num_ranks: int = 1
) -> EventAddress:
    """On the loopback interface."""
    return EventAddress("127.0.0.1", events_port, replay_port, num_ranks, 100, 1_000)


class Clients:
    """Sockets of the listening side, closed together."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()
        self._sockets: list[zmq.asyncio.Socket] = []

    def open(self, kind: int) -> zmq.asyncio.Socket:
        """A new socket."""
        self._sockets.append(self._context.socket(kind))
        return self._sockets[-1]

    def close(self) -> None:
        """Close them all."""
        for socket in self._sockets:
            socket.close(0)
        self._context.term()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    """Of one test."""
    with closing(Clients()) as clients:
        yield clients


@asynccontextmanager
async def serving(publisher: EventPublisher) -> AsyncIterator[None]:
    """Answer replays meanwhile."""
    task = asyncio.create_task(publisher.serve_replays())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def replay(dealer: zmq.asyncio.Socket, request: list[bytes]) -> list[list[bytes]]:
    """Ask, and read up to the end marker."""
    await dealer.send_multipart(request)
    replies = [await dealer.recv_multipart()]
    while replies[-1][-2] != b"\xff" * 8:
        replies.append(await dealer.recv_multipart())
    return replies


@pytest.fixture(params=SECTIONS)
def recording(request: pytest.FixtureRequest, golden: Path) -> dict[str, Any]:
    """Frames that SGLang sent and answered."""
    path = golden / "sglang" / "zmq_frames_sglang_0.5.23.json"
    if not path.exists():
        lacking(f"needs {path}")
    section: dict[str, Any] = json.loads(path.read_text())[request.param]
    return section


def raw(frames: list[str]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in frames]


def recorded_batches(recording: dict[str, Any]) -> list[EventBatch]:
    return [decode_batch(raw(frames)[-1]) for frames in recording["live"]]


def publisher_like(
    recording: dict[str, Any], sockets: EventSockets, clock: Iterator[float]
) -> EventPublisher:
    """Set up as the recorded one was."""
    config = recording["config"]
    log = BatchLog(recording["dp_rank"], config["topic"], config["buffer_steps"])
    return EventPublisher(log, sockets.ranks[0], lambda: next(clock))


async def test_live_frames_equal_the_engines(recording: dict[str, Any], clients: Clients) -> None:
    batches = recorded_batches(recording)
    with closing(EventSockets(address())) as sockets:
        subscriber = clients.open(zmq.SUB)
        subscriber.subscribe(recording["config"]["topic"])
        subscriber.connect(f"tcp://127.0.0.1:{sockets.events_port}")
        await subscribed(sockets.ranks[0].pub, subscriber, recording["config"]["topic"])
        publisher = publisher_like(recording, sockets, iter(batch.ts for batch in batches))
        for batch in batches:
            publisher.publish(batch.events)
        heard = [await subscriber.recv_multipart() for _ in batches]
    assert heard == [raw(frames) for frames in recording["live"]]


async def subscribed(pub: zmq.Socket[bytes], subscriber: zmq.asyncio.Socket, topic: str) -> None:
    """Until the subscription has reached the publisher; its probes are read away."""
    probe = [topic.encode(), b"probe"]
    while not await subscriber.poll(5):
        pub.send_multipart(probe)
    while await subscriber.poll(5):
        assert await subscriber.recv_multipart() == probe


async def test_replay_frames_equal_the_engines(recording: dict[str, Any], clients: Clients) -> None:
    batches = recorded_batches(recording)
    with closing(EventSockets(address())) as sockets:
        publisher = publisher_like(recording, sockets, iter(batch.ts for batch in batches))
        for batch in batches:
            publisher.publish(batch.events)
        dealer = clients.open(zmq.DEALER)
        dealer.connect(f"tcp://127.0.0.1:{sockets.replay_port}")
        async with serving(publisher):
            for exchange in recording["replay_dealer"]:
                answer = await replay(dealer, raw(exchange["request"]))
                assert answer == [raw(frames) for frames in exchange["response"]]


async def test_first_reply_to_a_req_socket(recording: dict[str, Any], clients: Clients) -> None:
    batches = recorded_batches(recording)
    with closing(EventSockets(address())) as sockets:
        publisher = publisher_like(recording, sockets, iter(batch.ts for batch in batches))
        for batch in batches:
            publisher.publish(batch.events)
        request = clients.open(zmq.REQ)
        request.connect(f"tcp://127.0.0.1:{sockets.replay_port}")
        async with serving(publisher):
            await request.send(bytes(8))
            assert await request.recv_multipart() == raw(recording["replay_req_first_reply_only"])


@pytest.mark.parametrize(
    "request_frames", [[bytes(8)], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b""]]
)
async def test_other_requests_are_ignored_and_counted(
    request_frames: list[bytes], clients: Clients
) -> None:
    with closing(EventSockets(address())) as sockets:
        publisher = EventPublisher(BatchLog(0, "", 10), sockets.ranks[0], lambda: 1.0)
        publisher.publish([AllBlocksCleared()])
        dealer = clients.open(zmq.DEALER)
        dealer.connect(f"tcp://127.0.0.1:{sockets.replay_port}")
        async with serving(publisher):
            await dealer.send_multipart(request_frames)
            assert len(await replay(dealer, [b"", bytes(8)])) == 2  # the next one is answered
        assert publisher.counters.bad_requests == 1
        assert publisher.counters.replays == 1


async def test_whole_buffer_is_replayed(clients: Clients) -> None:
    with closing(EventSockets(EventAddress("127.0.0.1", 0, 0, 1, 3_000, 10))) as sockets:
        publisher = EventPublisher(BatchLog(0, "", 3_000), sockets.ranks[0], lambda: 1.0)
        for _ in range(3_500):
            publisher.publish([AllBlocksCleared()])
        dealer = clients.open(zmq.DEALER)
        dealer.set_hwm(0)
        dealer.connect(f"tcp://127.0.0.1:{sockets.replay_port}")
        async with serving(publisher):
            replies = await replay(dealer, [b"", bytes(8)])
    assert len(replies) == 3_001
    assert int.from_bytes(replies[0][-2], "big") == 500


async def test_publishing_does_not_wait_for_a_slow_subscriber(clients: Clients) -> None:
    with closing(EventSockets(EventAddress("127.0.0.1", 0, None, 1, 10, 10))) as sockets:
        subscriber = clients.open(zmq.SUB)
        subscriber.set_hwm(10)
        subscriber.subscribe("")
        subscriber.connect(f"tcp://127.0.0.1:{sockets.events_port}")
        publisher = EventPublisher(BatchLog(0, "", 10), sockets.ranks[0], lambda: 1.0)
        for _ in range(20_000):
            publisher.publish([AllBlocksCleared()])
        assert publisher.counters.published == 20_000
        assert publisher.last_seq == 19_999


async def test_ranks_stand_at_consecutive_ports() -> None:
    with closing(EventSockets(address(num_ranks=3))) as sockets:
        assert sockets.events_port is not None
        assert sockets.replay_port is not None
        for dp_rank, rank in enumerate(sockets.ranks):
            assert rank.router is not None
            assert port_of(rank.pub) == sockets.events_port + dp_rank
            assert port_of(rank.router) == sockets.replay_port + dp_rank


def port_of(socket: zmq.Socket[bytes] | zmq.asyncio.Socket) -> int:
    endpoint = socket.get(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return int(endpoint.rstrip(b"\0").rpartition(b":")[2])


async def test_without_replay_and_without_events() -> None:
    with closing(EventSockets(address(replay_port=None))) as sockets:
        assert sockets.replay_port is None
        assert sockets.ranks[0].router is None
        publisher = EventPublisher(BatchLog(0, "", 10), sockets.ranks[0], lambda: 1.0)
        await publisher.serve_replays()
    with closing(EventSockets(address(events_port=None))) as sockets:
        assert (sockets.ranks, sockets.events_port, sockets.replay_port) == ([], None, None)


async def test_port_that_is_taken_is_refused() -> None:
    with (
        closing(EventSockets(address())) as sockets,
        pytest.raises(EventPortError, match="in use"),
    ):
        EventSockets(address(events_port=sockets.events_port))


@pytest.mark.parametrize("host", ["0.0.0.0", "::1", "*"])
async def test_hosts_that_can_be_bound(host: str, clients: Clients) -> None:
    try:
        sockets = EventSockets(EventAddress(host, 0, 0, 1, 10, 10))
    except EventPortError as error:
        lacking(f"needs an interface for {host}: {error}")
    with closing(sockets):
        publisher = EventPublisher(BatchLog(0, "", 10), sockets.ranks[0], lambda: 1.0)
        dealer = clients.open(zmq.DEALER)
        dealer.ipv6 = True
        reached = "[::1]" if ":" in host else "127.0.0.1"
        dealer.connect(f"tcp://{reached}:{sockets.replay_port}")
        async with serving(publisher):
            assert len(await replay(dealer, [b"", bytes(8)])) == 1
