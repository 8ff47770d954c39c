"""A worker that is busy with each request until it is let go on, and clients that wait for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.router.failing_workers import OK
from tests.router.front_door import FrontDoor, WireAnswer, WireClient, connect
from tests.router.stub_worker import Peer, Script, StubWorker, stub_worker

BODY = b'{"model":"m","messages":[]}'
CHAT = "/v1/chat/completions"


@dataclass
class BusyWorker:
    """Answers one request for each time that it is let go on."""

    stub: StubWorker
    gate: asyncio.Semaphore

    @property
    def url(self) -> str:
        """Base URL."""
        return self.stub.url

    @property
    def names(self) -> list[str]:
        """The requests that came, by the names that their clients gave them, in order."""
        return [request.values("x-name")[0] for request in self.stub.requests]

    def go_on(self, times: int = 1) -> None:
        """Answer what has come, or comes first."""
        for _ in range(times):
            self.gate.release()

    async def arrived(self) -> None:
        """Wait until one more request has come."""
        await self.stub.arrived.acquire()


@asynccontextmanager
async def busy_worker(script: Script = OK) -> AsyncIterator[BusyWorker]:
    """A worker that answers with this script, but only when it is let."""
    gate = asyncio.Semaphore(0)

    async def when_let(peer: Peer) -> None:
        await gate.acquire()
        await script(peer)

    async with stub_worker(when_let) as stub:
        yield BusyWorker(stub, gate)


@dataclass
class Caller:
    """A client whose request is on its way."""

    client: WireClient
    coming: "asyncio.Task[WireAnswer]"

    async def answer(self) -> WireAnswer:
        """What it gets."""
        return await self.coming

    async def leave(self, *, by_reset: bool = False) -> None:
        """Hang up before the answer has come."""
        self.coming.cancel()
        await asyncio.wait([self.coming])
        if by_reset:
            self.client.reset()
        else:
            self.client.close()


@asynccontextmanager
async def calling(
    door: FrontDoor,
    name: str,
    headers: Sequence[tuple[str, str]] = (),
    target: str = CHAT,
    body: bytes = BODY,
) -> AsyncIterator[Caller]:
    """A client of that name, once the router has its request."""
    num_before = door.counters.in_flight + sum(door.counters.requests.values())
    async with connect(door.port) as client:
        await client.send("POST", target, [("X-Name", name), *headers], body)
        task = asyncio.create_task(client.answer())
        while door.counters.in_flight + sum(door.counters.requests.values()) == num_before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        try:
            yield Caller(client, task)
        finally:
            task.cancel()
            await asyncio.wait([task])


async def depth(door: FrontDoor, expected: int) -> None:
    """Wait until so many requests wait."""
    async with asyncio.timeout(5):
        while len(door.relay.queue) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    door.relay.queue.check()
