"""A data port on a real socket, before stub workers and the stub brain; and a client that sees bytes."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.types import ASGIApp
from uvicorn.server import ServerState

from prompt import BUNDLED_MODEL_NAME, PromptModel, bundled_model_dir
from protocol import Rank, WorkerId, WorkerSpec
from router.client_keys import ClientKeys
from router.connections import ConnectionGuard, ConnectionLimits
from router.cors import Cors
from router.counters import DataCounters
from router.data_app import DataApp, DataLimits
from router.front import front_of, observed
from router.http_protocol import FrontDoorProtocol
from router.keepers import Keepers
from router.made_ids import MadeIds
from router.observed_app import Observer
from router.own_routes import Readiness
from router.ports import listen, make_server
from router.prompt_reader import PromptReader
from router.relay import Relay
from router.upstream import UpstreamTimeouts, open_upstream
from router.waiting_queue import QueueLimits, WaitingQueue
from scoring import OutcomeKind
from tests.router.stub_brain import StubBrain


@dataclass
class StubFleet:
    """What the data port shows of the fleet, and who loads prompts."""

    is_ready: bool = True
    has_settled: bool = True
    cards: Sequence[Mapping[str, object]] = ({"id": "m", "object": "model"},)
    model: PromptModel | None = None
    names: Collection[str] | None = ("m",)
    workers: Sequence[WorkerSpec] = ()

    def specs(self) -> Sequence[WorkerSpec]:
        """As set."""
        return self.workers

    def readiness(self) -> Readiness:
        """As set."""
        return Readiness(self.is_ready, "set by the test")

    def is_settled(self) -> bool:
        """As set."""
        return self.has_settled

    def model_cards(self) -> Sequence[Mapping[str, object]]:
        """As set."""
        return self.cards

    def served_by(self, worker: WorkerId) -> Collection[str] | None:
        """The same names for every worker."""
        return self.names

    def prompt_model(self, name: str | None) -> PromptModel | None:
        """The one model for every name."""
        return self.model


@dataclass
class Outcomes:
    """Listens to how attempts end."""

    kinds: list[tuple[Rank, OutcomeKind]] = field(default_factory=list)

    def attempt_ended(self, rank: Rank, kind: OutcomeKind, now: float) -> None:
        """Remember it."""
        self.kinds.append((rank, kind))


@dataclass
class FrontDoor:
    """A running data port."""

    port: int
    brain: StubBrain
    fleet: StubFleet
    counters: DataCounters
    listener: Outcomes
    server: ServerState
    guard: ConnectionGuard
    relay: Relay
    made: MadeIds = field(default_factory=MadeIds)

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def settled(self) -> None:
        """Wait until no request is being served, then check that every lease and wait was finished."""
        while self.counters.in_flight:  # noqa: ASYNC110  there is nothing to wait on from outside
            await asyncio.sleep(0.001)
        self.brain.check()
        assert self.relay.outages.num_waiting == 0
        self.relay.queue.check()
        assert not len(self.relay.queue)
        assert [kind for _, kind in self.listener.kinds] == self.brain.kinds


@asynccontextmanager
async def front_door(
    *urls: str,
    limits: DataLimits | None = None,
    timeouts: UpstreamTimeouts | None = None,
    connections: ConnectionLimits | None = None,
    dp_ranks: range = range(1),
    max_attempts: int = 3,
    names_worker: bool = True,
    keys: ClientKeys | None = None,
    cors: Cors | None = None,
    observers: Sequence[Observer] = (),
    queue: QueueLimits | None = None,
    capacity: int | None = None,
) -> AsyncIterator[FrontDoor]:
    """Serve a data port before the workers at ``urls``, named w0, w1, …"""
    waiting = WaitingQueue(queue)
    brain = StubBrain({f"w{index}": url for index, url in enumerate(urls)}, dp_ranks)
    brain.capacity, brain.watch = capacity, waiting
    specs = [WorkerSpec(WorkerId(name), url, "m") for name, url in brain.urls.items()]
    fleet, counters, listener = StubFleet(workers=specs), DataCounters(), Outcomes()
    with ThreadPoolExecutor(1) as executor:
        async with open_upstream(timeouts or UpstreamTimeouts()) as upstream:
            relay = Relay(
                brain, upstream, listener, counters, max_attempts, names_worker, queue=waiting
            )
            reader = PromptReader(fleet, executor, counters)
            keepers = Keepers(MadeIds(), fleet)
            app = DataApp(relay, reader, fleet, counters, limits or DataLimits(), keepers)
            guard = ConnectionGuard(connections or ConnectionLimits(keep_alive_s=5))
            front = observed(front_of(app, keys, cors or Cors()), observers, guard)
            async with _listening(front, guard) as (port, server):
                yield FrontDoor(
                    port, brain, fleet, counters, listener, server, guard, relay, keepers.made
                )


@asynccontextmanager
async def _listening(
    app: ASGIApp, guard: ConnectionGuard
) -> AsyncIterator[tuple[int, ServerState]]:
    """The server's protocol on a socket, without the server's clock: starts and stops at once."""
    config = make_server(app, guard, grace_s=1).config
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: FrontDoorProtocol(config, state, {}, guard=guard), sock=listen("127.0.0.1", 0)
    )
    try:
        yield server.sockets[0].getsockname()[1], state
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)


def bundled_model() -> PromptModel:
    """The model that comes with the package."""
    return PromptModel.load(bundled_model_dir(), name=BUNDLED_MODEL_NAME)


@dataclass
class WireAnswer:
    """An answer as it came over the wire."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    is_whole: bool = True

    def values(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


class WireClient:
    """One connection to the data port, driven step by step."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
    ) -> None:
        """Send a request; a body gets its length."""
        lines = [f"{method} {target} HTTP/1.1", "Host: router"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        await self.writer.drain()

    async def head(self) -> WireAnswer:
        """Read status line and header section."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.split("\r\n")[:-2]
        fields = [
            (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
        ]
        return WireAnswer(int(first.split(" ")[1]), fields)

    async def chunk(self) -> bytes:
        """Read one chunk of a chunked body; empty at its end.

        Raises:
            asyncio.IncompleteReadError: the connection ended within the body.
        """
        size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def answer(self, *, method: str = "GET") -> WireAnswer:
        """Read a whole answer; ``is_whole`` is False where it broke off."""
        answer = await self.head()
        try:
            if method == "HEAD" or answer.status in (204, 304):
                return answer
            if "chunked" in answer.values("transfer-encoding"):
                while data := await self.chunk():
                    answer.body += data
            else:
                answer.body = await self.reader.readexactly(int(answer.values("content-length")[0]))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            answer.body += getattr(error, "partial", b"")
            answer.is_whole = False
        return answer

    def reset(self) -> None:
        """Reset the connection."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[WireClient]:
    """A connection to the data port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield WireClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(
    door: FrontDoor,
    method: str = "POST",
    target: str = "/v1/chat/completions",
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = b'{"model":"m","messages":[]}',
) -> WireAnswer:
    """One request on a connection of its own."""
    async with connect(door.port) as client:
        await client.send(method, target, headers, body)
        return await client.answer(method=method)
