"""The mixed traffic of a soak: answers that are read, clients that leave, requests that are none.

Every request has an id, a session and a user of its own; prompts are drawn from a few, so that what is known of them
does not grow.
"""

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from benchmarks.load_client import Connection, request_bytes
from benchmarks.soak_engine import Mood

NUM_PROMPTS = 100
_CHAT, _UNROUTED = "/v1/chat/completions", "/never/heard/of"
_READ = (  # moods whose answers are read, and how often of a thousand
    (Mood.WELL, 500), (Mood.STREAM, 200), (Mood.LATE, 60), (Mood.WRONG, 20), (Mood.BUSY, 20), (Mood.ERROR, 10),
    (Mood.RESET, 5), (Mood.CLOSE, 5), (Mood.GARBAGE, 5), (Mood.BROKEN, 5),
)  # fmt: skip
_LEFT = ((Mood.LONG, 80), (Mood.LATE, 30), (Mood.SILENT, 10), (Mood.STREAM, 20))
_NONE = 30  # of a thousand: bytes that are no request, or a body that is none
_GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /x HTTP/1.1\r\nhost: r\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
    b"\x00" * 100,
)


@dataclass
class Tally:
    """What clients did and saw.

    Attributes:
        num_requests: of which the router got the head.
        statuses: of answers that were read; 0 where one broke off.
    """

    num_requests: int = 0
    num_left: int = 0
    num_garbage: int = 0
    statuses: Counter[int] = field(default_factory=Counter)


class Traffic:
    """Clients of one port. ``run`` it once."""

    def __init__(self, port: int, rng: Random, num_requests: int) -> None:
        self._port = port
        self._rng = rng
        self.limit = num_requests
        self.tally = Tally()
        words = [f"w{number}" for number in range(400)]
        self._prompts = [
            " ".join(rng.choices(words, k=rng.choice((10, 60, 400)))) for _ in range(NUM_PROMPTS)
        ]

    async def run(self, num_clients: int) -> None:
        """Send everything, through so many clients at once."""
        async with asyncio.TaskGroup() as group:
            for _ in range(num_clients):
                group.create_task(self._client())

    async def _client(self) -> None:
        """One connection that is kept, and others that are not."""
        loop, kept, tally = asyncio.get_running_loop(), None, self.tally
        while tally.num_requests < self.limit:
            drawn = self._rng.randrange(1_000)
            if drawn < _NONE:
                await self._garbage()
            elif drawn < _NONE + sum(share for _, share in _LEFT):
                await self._leave(self._drawn(_LEFT))
            else:
                if kept is None:
                    _, kept = await loop.create_connection(Connection, "127.0.0.1", self._port)
                tally.num_requests += 1
                status = await kept.ask(self._request(self._drawn(_READ)))
                tally.statuses[status] += 1
                if not status or not kept.is_open:
                    kept.close()
                    kept = None
        if kept is not None:
            kept.close()

    async def _leave(self, mood: Mood) -> None:
        """Ask, and leave before the answer, within it, or at its first byte."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.tally.num_requests += 1
        self.tally.num_left += 1
        writer.write(self._request(mood))
        if self._rng.random() < 0.5:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(self._rng.random() * 0.05):
                    await reader.read(400)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _garbage(self) -> None:
        """Bytes that are no request."""
        self.tally.num_garbage += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._rng.choice(_GARBAGE))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def _drawn(self, shares: tuple[tuple[Mood, int], ...]) -> Mood:
        moods, weights = zip(*shares, strict=True)
        return Mood(self._rng.choices(moods, weights)[0])

    def _request(self, mood: Mood) -> bytes:
        rng = self._rng
        unique = f"{rng.getrandbits(64):016x}"
        is_unknown = mood is Mood.WRONG and rng.random() < 0.5
        body = {
            "model": f"model-{unique}" if is_unknown else "stub",
            "user": f"{mood}-{unique}",
            "stream": mood in (Mood.STREAM, Mood.LONG),
            "messages": [{"role": "user", "content": rng.choice(self._prompts)}],
        }
        path = _UNROUTED if rng.random() < 0.1 else _CHAT
        headers = {"x-request-id": unique, "x-session-id": unique}
        return request_bytes(path, json.dumps(body).encode(), headers)
