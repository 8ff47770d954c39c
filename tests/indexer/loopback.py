"""A publisher on loopback as engines have it, and a way to wait for what it leads to."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import zmq

from protocol import (
    BadFramesError,
    BlockStored,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    encode_batch,
    live_frames,
    parse_replay_request,
    replay_frames,
)

TIMEOUT_S = 20.0


class Changes:
    """Something that changes, to be waited for without polling."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def note(self) -> None:
        """Something has changed."""
        self._event.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until ``is_so``, looked at after every change."""
        async with asyncio.timeout(TIMEOUT_S):
            self._event.clear()
            while not is_so():
                await self._event.wait()
                self._event.clear()


class LoopbackPublisher:
    """XPUB and ROUTER of one rank, served on the running loop; a buffer that replays.

    Args:
        changes: told of subscriptions and replay requests.
        ports: of both sockets; 0 chooses.
        stamp: makes the payloads of this process unlike any other's.
        answers: False leaves every replay unanswered, until that is set to True.

    Attributes:
        num_subscribers: connections that are subscribed.
        requests: first numbers that were asked for.
        first_kept: number below which nothing is replayed any more.
    """

    def __init__(
        self,
        changes: Changes,
        ports: tuple[int, int] = (0, 0),
        *,
        stamp: float = 0.0,
        host: str = "127.0.0.1",
        has_topic_frame: bool = True,
        answers: bool = True,
    ) -> None:
        self._changes = changes
        self._stamp = stamp
        self._host = host
        self._has_topic_frame = has_topic_frame
        self.answers = answers
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live, self._live_port = self._bind(zmq.XPUB, ports[0], self._on_subscription)
        self._router, self._replay_port = self._bind(zmq.ROUTER, ports[1], self._on_request)
        self.buffer: list[tuple[int, bytes]] = []
        self.first_kept = 0
        self.num_subscribers = 0
        self.requests: list[int] = []

    @property
    def ports(self) -> tuple[int, int]:
        return self._live_port, self._replay_port

    def source(self, worker: str, *, has_replay: bool = True) -> EventSource:
        """Where this publisher is heard."""
        replay = f"tcp://{self._host}:{self._replay_port}" if has_replay else None
        endpoint = f"tcp://{self._host}:{self._live_port}"
        return EventSource(Rank(WorkerId(worker)), endpoint, replay)

    def publish(self, block: int, *, is_withheld: bool = False) -> None:
        """Announce ``block``; a withheld batch can only be replayed."""
        self.publish_batch([block], is_withheld=is_withheld)

    def publish_batch(self, blocks: Iterable[int], *, is_withheld: bool = False) -> None:
        """Announce blocks in one message, an event each."""
        seq = len(self.buffer)
        stored = [BlockStored([block], None, [1], 1, "GPU") for block in blocks]
        payload = encode_batch(EventBatch(self._stamp + seq, stored, 0))
        self.buffer.append((seq, payload))
        if not is_withheld:
            self.send(live_frames(LiveMessage(b"", seq, payload)))

    def send(self, frames: list[bytes]) -> None:
        """Send frames as they are."""
        self._live.send_multipart(frames)

    def close(self) -> None:
        """The process is gone, its connections with it."""
        loop = asyncio.get_running_loop()
        for socket in (self._live, self._router):
            loop.remove_reader(socket.FD)
            socket.close(0)
        self._context.term()

    def _bind(
        self, kind: int, port: int, read: Callable[[list[bytes]], None]
    ) -> tuple[zmq.Socket[bytes], int]:
        socket = self._context.socket(kind)
        socket.set(zmq.IPV6, int(":" in self._host))
        if kind == zmq.XPUB:
            socket.set(zmq.XPUB_VERBOSER, 1)  # every subscriber shows, not only the first
        socket.bind(f"tcp://{self._host}:{port or '*'}")
        socket.set(zmq.LINGER, 0)

        def drain() -> None:
            with contextlib.suppress(zmq.Again):
                while True:
                    read(socket.recv_multipart(zmq.NOBLOCK))
            self._changes.note()

        asyncio.get_running_loop().add_reader(socket.FD, drain)
        endpoint = socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        return socket, int(endpoint.rpartition(b":")[2])

    def _on_subscription(self, frames: list[bytes]) -> None:
        self.num_subscribers += 1 if frames[0][:1] == b"\x01" else -1

    def _on_request(self, frames: list[bytes]) -> None:
        try:
            first_seq = parse_replay_request(frames[1:])
        except BadFramesError:
            return
        self.requests.append(first_seq)
        replies: list[ReplayReply | ReplayEnd] = [
            ReplayReply(seq, payload)
            for seq, payload in self.buffer
            if seq >= max(first_seq, self.first_kept)
        ]
        for reply in [*replies, ReplayEnd()] if self.answers else []:
            answer = replay_frames(b"", reply)
            if not self._has_topic_frame:
                del answer[1]
            self._router.send_multipart([frames[0], *answer])
