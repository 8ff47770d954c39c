"""A publisher of several ranks whose every frame the test decides: bound or connecting, answering as told."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

import zmq

from protocol import (
    BadFramesError,
    BlockStored,
    EventBatch,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    encode_batch,
    live_frames,
    parse_replay_request,
    replay_frames,
)
from tests.indexer.loopback import Changes

Answer = Callable[[int], Iterable[Sequence[bytes]]]
"""Replies, as a DEALER receives them, to a request for all from a number on."""

END = replay_frames(b"", ReplayEnd())
OLD_END = [b"", b"\xff" * 8, b""]


def payload(block: int, dp_rank: int | None = None, stamp: float = 0.0) -> bytes:
    """A batch that stores one block."""
    stored = BlockStored([block], None, [1], 1, "GPU")
    return encode_batch(EventBatch(stamp + block, [stored], dp_rank))


class RawPublisher:
    """XPUB and ROUTER of one process.

    Args:
        connect: endpoints that the XPUB connects to, in place of binding a port of its own.
        answer: what a replay request leads to; nothing by default.

    Attributes:
        endpoint, replay_endpoint: where it is bound.
        requests: first numbers that were asked for.
        num_subscribers: subscriptions in force; ``num_subscriptions``, how many there ever were.
    """

    def __init__(
        self,
        changes: Changes,
        *,
        connect: Sequence[str] = (),
        bind: str = "tcp://127.0.0.1:*",
        answer: Answer = lambda _: (),
    ) -> None:
        self._changes = changes
        self.answer = answer
        self.requests: list[int] = []
        self.num_subscribers = self.num_subscriptions = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live = self._socket(zmq.XPUB, self._on_subscription)
        self._live.set(zmq.XPUB_VERBOSER, 1)
        for endpoint in connect:
            self._live.connect(endpoint)
        self.endpoint = "" if connect else _bound(self._live, bind)
        self._router = self._socket(zmq.ROUTER, self._on_request)
        self.replay_endpoint = _bound(self._router, "tcp://127.0.0.1:*")

    def send(self, seq: int, body: bytes, topic: bytes = b"") -> None:
        """A live message."""
        self.send_frames(live_frames(LiveMessage(topic, seq, body)))

    def send_frames(self, frames: Sequence[bytes]) -> None:
        """Frames as they are."""
        self._live.send_multipart(frames)

    def close(self) -> None:
        """The process is gone, its connections with it."""
        loop = asyncio.get_running_loop()
        for socket in (self._live, self._router):
            loop.remove_reader(socket.FD)
            socket.close(0)
        self._context.term()

    def _socket(self, kind: int, read: Callable[[list[bytes]], None]) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, 10)

        def drain() -> None:
            with contextlib.suppress(zmq.Again):
                while True:
                    read(socket.recv_multipart(zmq.NOBLOCK))
            self._changes.note()

        asyncio.get_running_loop().add_reader(socket.FD, drain)
        return socket

    def _on_subscription(self, frames: list[bytes]) -> None:
        is_begun = frames[0][:1] == b"\x01"
        self.num_subscribers += 1 if is_begun else -1
        self.num_subscriptions += is_begun

    def _on_request(self, frames: list[bytes]) -> None:
        with contextlib.suppress(BadFramesError):
            first_seq = parse_replay_request(frames[1:])
            self.requests.append(first_seq)
            for reply in self.answer(first_seq):
                self._router.send_multipart([frames[0], *reply])


def _bound(socket: zmq.Socket[bytes], endpoint: str) -> str:
    socket.bind(endpoint)
    bound = socket.get(zmq.LAST_ENDPOINT)
    assert isinstance(bound, bytes)
    return bound.rstrip(b"\0").decode()


def buffered(
    batches: Sequence[tuple[int, bytes]], *, has_topic_frame: bool = True, steps: int = 10_000
) -> Answer:
    """The buffer of a publisher that keeps the last ``steps`` batches, of one or several ranks."""

    def answer(first_seq: int) -> Iterable[Sequence[bytes]]:
        kept = [one for one in batches[-steps:] if one[0] >= first_seq]
        for seq, body in kept:
            if has_topic_frame:
                yield replay_frames(b"", ReplayReply(seq, body))
            else:
                yield [b"", seq.to_bytes(8, "big"), body]
        yield END if has_topic_frame else OLD_END

    return answer
