"""Engines that do what a request asks for, faults included, and go away now and then: what a soak stands on.

The field ``user`` of a body names the mood in which it is served. One after the other each engine stops listening
and breaks its connections for a moment, as one that is started anew. They run in one process of their own.
"""

import argparse
import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Callable
from enum import StrEnum
from functools import partial

import uvloop
import zmq

from benchmarks.stub_engine import StubEngine, completion, discovery_pages

_DOWN_S = 0.3
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_TEXT, _DONE = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n', b"data: [DONE]\n\n"
_EVENT = b"%x\r\n%s\r\n" % (len(_TEXT), _TEXT)
_LAST = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_DONE), _DONE)
_USER = re.compile(rb'"user": ?"([a-z]+)-')


class Mood(StrEnum):
    """How a request is served."""

    WELL = "well"
    STREAM = "stream"
    LONG = "long"  # a stream that goes on until its client leaves
    LATE = "late"
    ERROR = "error"
    BUSY = "busy"
    WRONG = "wrong"  # the client's fault
    RESET = "reset"
    CLOSE = "close"
    GARBAGE = "garbage"
    BROKEN = "broken"  # within its answer
    SILENT = "silent"  # never answers


_AT_ONCE = {
    Mood.WELL: completion(64, 32),
    Mood.ERROR: b"HTTP/1.1 500 X\r\ncontent-length: 2\r\n\r\n{}",
    Mood.BUSY: b"HTTP/1.1 503 X\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}",
    Mood.WRONG: b"HTTP/1.1 400 X\r\ncontent-length: 2\r\n\r\n{}",
    Mood.GARBAGE: b"SSH-2.0-OpenSSH\r\n\r\n",
    Mood.BROKEN: b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome",
}


class MoodyEngine(StubEngine):
    """One connection."""

    def __init__(self, pages: dict[bytes, bytes], connections: set["MoodyEngine"]) -> None:
        super().__init__(pages, _AT_ONCE[Mood.WELL])
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.discard(self)

    def on_message_complete(self) -> None:
        found = _USER.search(b"".join(self._body))
        if found is None:
            super().on_message_complete()
            return
        mood = Mood(found[1].decode())
        assert self._transport is not None
        if mood in _AT_ONCE:
            self._transport.write(_AT_ONCE[mood])
        if mood in (Mood.GARBAGE, Mood.BROKEN, Mood.CLOSE):
            self._transport.close()
        elif mood is Mood.RESET:
            self.reset()
        elif mood not in _AT_ONCE and mood is not Mood.SILENT:
            self._sender = asyncio.get_running_loop().create_task(self._take_time(mood))

    def reset(self) -> None:
        """End the connection by a reset."""
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def _take_time(self, mood: Mood) -> None:
        assert self._transport is not None
        if mood is Mood.LATE:
            await asyncio.sleep(0.02)
            self._transport.write(_AT_ONCE[Mood.WELL])
            return
        self._transport.write(_STREAM)
        for _ in range(10_000 if mood is Mood.LONG else 8):
            self._transport.write(_EVENT)
            await asyncio.sleep(0.001)
        self._transport.write(_LAST)


async def _come_and_go(
    port: int,
    make: Callable[[], MoodyEngine],
    connections: set[MoodyEngine],
    turn_s: tuple[float, float],
) -> None:
    """Serve, and be away for a moment whenever the turn comes."""
    loop = asyncio.get_running_loop()
    first_s, every_s = turn_s
    up_s = first_s
    while True:
        server = await loop.create_server(make, "127.0.0.1", port)
        await asyncio.sleep(up_s)
        server.close()
        for one in list(connections):
            one.reset()
        await asyncio.sleep(_DOWN_S)
        up_s = every_s


async def _serve(options: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        async with asyncio.TaskGroup() as group:
            for index, port in enumerate(options.port):
                publisher = stack.enter_context(context.socket(zmq.PUB))
                events_port = publisher.bind_to_random_port("tcp://127.0.0.1")
                pages = discovery_pages(options.model, options.tokenizer, events_port)
                connections: set[MoodyEngine] = set()
                make = partial(MoodyEngine, pages, connections)
                every_s = options.restart_every_s * len(options.port)
                turn_s = (options.restart_every_s * (index + 1), every_s)
                group.create_task(_come_and_go(port, make, connections, turn_s))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, action="append", required=True, help="one an engine")
    parser.add_argument("--model", default="stub")
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--restart-every-s", type=float, default=1e6, help="of one engine in turn")
    uvloop.run(_serve(parser.parse_args()))
