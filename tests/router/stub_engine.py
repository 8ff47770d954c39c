"""A worker that describes itself as an engine does, and publishes events where asked to."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import zmq
import zmq.asyncio

from protocol import BlockStored, EventBatch, LiveMessage, encode_batch, live_frames
from tests.router.stub_worker import Peer, Script, StubWorker, response, stub_worker

USAGE = {
    "prompt_tokens": 8,
    "completion_tokens": 1,
    "prompt_tokens_details": {"cached_tokens": 4},
}
ANSWER = json.dumps({"choices": [{"message": {"content": "ok"}}], "usage": USAGE}).encode()


async def answer_chat(peer: Peer) -> None:
    """One JSON answer."""
    await peer.send(response(ANSWER))


@dataclass
class StubEngine:
    """What the engine says of itself; change it and the router learns it anew.

    Attributes:
        pages: by path: a text as it stands, anything else as JSON.
    """

    worker: StubWorker
    pages: dict[str, object] = field(default_factory=dict)
    is_healthy: bool = True

    @property
    def url(self) -> str:
        """Base URL."""
        return self.worker.url

    @property
    def name(self) -> str:
        """As the router calls it."""
        return f"{self.worker.host}:{self.worker.port}"

    @property
    def num_served(self) -> int:
        """Requests that were no probes."""
        return sum(request.target.startswith("/v1/chat") for request in self.worker.requests)


@asynccontextmanager
async def stub_engine(
    *,
    model: str = "m",
    tokenizer: str = "",
    kv_events: Mapping[str, object] | None = None,
    script: Script = answer_chat,
    tokenizes: bool = False,
    host: str = "127.0.0.1",
) -> AsyncIterator[StubEngine]:
    """An engine with SGLang's information routes; ``tokenizes``: its script serves `/tokenize`, too."""

    async def serve(peer: Peer) -> None:
        target = peer.request.target
        if target == "/health":
            await peer.send(response(b"", status=200 if engine.is_healthy else 503))
        elif target in engine.pages:
            page = engine.pages[target]
            await peer.send(
                response((page if isinstance(page, str) else json.dumps(page)).encode())
            )
        elif peer.request.method == "GET" or (target == "/tokenize" and not tokenizes):
            await peer.send(response(b"{}", status=404))
        else:
            await script(peer)
        if "close" in map(str.lower, peer.request.values("connection")):  # as engines do
            peer.close()

    async with stub_worker(serve, host) as worker:
        engine = StubEngine(worker)
        card = {"id": model, "object": "model", "root": model, "parent": None}
        info: dict[str, object] = {
            "served_model_name": model,
            "tokenizer_path": tokenizer,
            "page_size": 4,
            "version": "0.5.23",
        }
        if kv_events is not None:
            info["kv_events"] = kv_events
        engine.pages = {"/v1/models": {"data": [card]}, "/server_info": info}
        yield engine


@dataclass
class StubPublisher:
    """A publishing socket that numbers its batches, without replay."""

    socket: zmq.Socket[bytes]
    port: int
    seq: int = 0
    num_subscriptions: int = 0

    @property
    def kv_events(self) -> dict[str, object]:
        """As ``/server_info`` names it."""
        return {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": self.port,
            "topic": "",
            "block_size": 4,
            "dp_size": 1,
        }

    def is_subscribed(self) -> bool:
        """Has anybody asked for what is published?"""
        while self.socket.poll(0):
            self.num_subscriptions += 1 if self.socket.recv()[:1] == b"\x01" else -1
        return self.num_subscriptions > 0

    def store(self, tokens: Sequence[int], medium: str = "GPU") -> None:
        """Publish a chain of blocks of 4."""
        hashes = [
            hash((medium, tuple(tokens[: 4 * n + 4]))) & 0xFFFF for n in range(len(tokens) // 4)
        ]
        stored = BlockStored(hashes, None, list(tokens), 4, medium=medium)
        batch = EventBatch(1.0, [stored], dp_rank=0)
        message = LiveMessage(b"", self.seq, encode_batch(batch))
        self.socket.send_multipart(live_frames(message))
        self.seq += 1


@asynccontextmanager
async def stub_publisher() -> AsyncIterator[StubPublisher]:
    """A bound publisher."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        yield StubPublisher(socket, port)


async def until(condition: Callable[[], bool], bound_s: float = 5.0) -> None:
    """Poll a condition of the world outside until it holds.

    Raises:
        TimeoutError: it does not within the bound.
    """
    async with asyncio.timeout(bound_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
