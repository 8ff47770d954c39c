"""Workers that do anything, and clients that leave at any moment: each draws what it does from a seeded generator."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.router import failing_workers as failing
from tests.router.front_door import WireClient, connect
from tests.router.stub_engine import ANSWER
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, Script, answering, chunk, response

EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
PAUSE_S = 0.01


async def stream(peer: Peer) -> None:
    """A whole stream, an event at a time."""
    await peer.send(SSE_HEAD)
    for _ in range(8):
        await peer.send(chunk(EVENT))
        await asyncio.sleep(PAUSE_S)
    await peer.send(chunk(DONE) + LAST_CHUNK)


async def long_body(peer: Peer) -> None:
    """More than the buffers on the way hold."""
    await peer.send(response(b"x" * 3_000_000))


async def late(peer: Peer) -> None:
    """A whole answer after a while."""
    await asyncio.sleep(5 * PAUSE_S)
    await peer.send(response(ANSWER))


async def late_end(peer: Peer) -> None:
    """It closes after a while, without a byte."""
    await asyncio.sleep(3 * PAUSE_S)
    peer.close()


async def hang(peer: Peer) -> None:
    """Never answers."""
    await peer.gone()


async def hang_after_the_head(peer: Peer) -> None:
    """A head, and nothing."""
    await peer.send(SSE_HEAD)
    await peer.gone()


async def hang_within(peer: Peer) -> None:
    """Some events, and nothing."""
    await peer.send(SSE_HEAD + chunk(EVENT) + chunk(EVENT))
    await peer.gone()


async def reset_within_a_stream(peer: Peer) -> None:
    """Some events, and a reset."""
    await peer.send(SSE_HEAD + chunk(EVENT))
    await asyncio.sleep(PAUSE_S)
    peer.reset()


async def done_and_reset(peer: Peer) -> None:
    """It says that it is done, and has no end."""
    await peer.send(SSE_HEAD + chunk(EVENT + DONE))
    await asyncio.sleep(PAUSE_S)
    peer.reset()


async def until_the_end(peer: Peer) -> None:
    """A body that ends with its connection."""
    await peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + ANSWER)
    peer.close()


GOOD: Sequence[Script] = (
    answering(response(ANSWER)),
    answering(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + response(ANSWER)),
    stream,
    late,
    long_body,
    until_the_end,
)
BAD: Sequence[Script] = (
    *(answering(response(b"{}", status=status)) for status in (400, 404, 429, 500, 502, 503)),
    answering(response(ANSWER) + b"HTTP/1.1 200 OK\r\n\r\n"),
    *failing.MALFORMED,
    failing.close_at_once,
    failing.reset_at_once,
    failing.close_after_headers,
    failing.reset_within_length,
    failing.close_within_chunks,
    failing.reset_without_length,
    late_end,
    hang,
    hang_after_the_head,
    hang_within,
    reset_within_a_stream,
    done_and_reset,
)


def anything(rng: Random, bad_share: float) -> Script:
    """A script that draws one of the others for each request."""

    async def script(peer: Peer) -> None:
        chosen = rng.choice(BAD if rng.random() < bad_share else GOOD)
        await chosen(peer)

    return script


class Visit(NamedTuple):
    """What one client has seen.

    Attributes:
        num_asked: requests of which the router has got the head.
        statuses: of the answers that it has stayed for.
    """

    num_asked: int
    statuses: list[int]


class Chance:
    """Clients of one port."""

    def __init__(self, rng: Random, port: int) -> None:
        self._rng = rng
        self._port = port
        self._num_drawn = 0

    def request(self) -> bytes:
        """One of many kinds; ids, sessions and users are new each time."""
        rng = self._rng
        self._num_drawn += 1
        unique = f"{self._num_drawn}-{rng.getrandbits(32):x}"
        words = " ".join(str(rng.randrange(50)) for _ in range(rng.choice((3, 200, 6_000))))
        body = json.dumps(
            {
                "model": "m",
                "stream": rng.random() < 0.5,
                "user": unique,
                "prompt": words,
                "messages": [{"role": "user", "content": words}],
            }
        ).encode()
        target = rng.choice(
            (
                "/v1/chat/completions",
                "/v1/chat/completions",
                "/v1/completions",
                "/v1/embeddings",
                "/generate",
                "/never/heard/of",
                "/files",
            )
        )
        method = "POST" if rng.random() < 0.9 else rng.choice(("GET", "PUT", "DELETE"))
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: r\r\nX-Request-Id: {unique}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def visit(self) -> Visit:
        """One client, from its connection to its leaving. It may leave at any moment."""
        leave = self._rng.choice(
            (
                self._within_the_head,
                self._within_the_body,
                self._at_once,
                self._in_a_while,
                self._after_the_head,
                self._after_a_piece,
                self._after_not_reading,
                self._at_the_end,
                self._at_the_end,
                self._after_two,
            )
        )
        async with connect(self._port) as client:
            return await leave(client)

    async def _within_the_head(self, client: WireClient) -> Visit:
        client.writer.write(self.request()[:20])
        return Visit(0, [])

    async def _within_the_body(self, client: WireClient) -> Visit:
        request = self.request()
        client.writer.write(request[: request.index(b"\r\n\r\n") + 10])
        await asyncio.sleep(self._rng.choice((0, PAUSE_S)))
        return Visit(1, [])

    async def _at_once(self, client: WireClient) -> Visit:
        client.writer.write(self.request())
        return Visit(1, [])

    async def _in_a_while(self, client: WireClient) -> Visit:
        client.writer.write(self.request())
        await asyncio.sleep(self._rng.random() * 5 * PAUSE_S)
        return Visit(1, [])

    async def _after_the_head(self, client: WireClient) -> Visit:
        client.writer.write(self.request())
        await client.head()
        self._hang_up(client)
        return Visit(1, [])

    async def _after_a_piece(self, client: WireClient) -> Visit:
        client.writer.write(self.request())
        await client.head()
        with contextlib.suppress(ConnectionError):
            await client.reader.read(100)
        self._hang_up(client)
        return Visit(1, [])

    async def _after_not_reading(self, client: WireClient) -> Visit:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(self.request())
        await asyncio.sleep(10 * PAUSE_S)
        return Visit(1, [])

    async def _at_the_end(self, client: WireClient) -> Visit:
        client.writer.write(self.request())
        status, _ = await self._whole(client)
        return Visit(1, [status])

    async def _after_two(self, client: WireClient) -> Visit:
        client.writer.write(self.request())
        first, is_kept = await self._whole(client)
        if not is_kept:
            return Visit(1, [first])
        client.writer.write(self.request())
        second, _ = await self._whole(client)
        return Visit(2, [first, second])

    async def _whole(self, client: WireClient) -> tuple[int, bool]:
        """Status of the answer, and whether the connection goes on after it."""
        head = await client.head()
        is_kept = "close" not in head.values("connection")
        try:
            if "chunked" in head.values("transfer-encoding"):
                while await client.chunk():
                    pass
            elif lengths := head.values("content-length"):
                await client.reader.readexactly(int(lengths[0]))
        except (ConnectionError, asyncio.IncompleteReadError):
            is_kept = False
        return head.status, is_kept

    def _hang_up(self, client: WireClient) -> None:
        leave: Callable[[], None] = self._rng.choice((client.close, client.reset))
        leave()
