"""One rank's events on the wire: live batches on a PUB, replays on a ROUTER.

    PUB     [topic, seq u64 BE, payload]
    ROUTER  asked [identity, b"", first seq]; answers [identity, b"", topic, seq, payload]…, end marker;
            releases of vLLM before 0.26 leave the topic out

Sending never blocks: a subscriber slower than ``hwm`` messages loses the further ones, and a replay
client that does not read loses what exceeds a whole buffer. Any other request is ignored and counted.

Source: SGLang 0.5.23 and vLLM 0.32.0 ``ZmqEventPublisher``.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import zmq
import zmq.asyncio

from protocol import (
    BadFramesError,
    KvEvent,
    live_frames,
    parse_replay_request,
)
from worker.batch_log import BatchLog
from worker.event_sockets import RankSockets

logger = logging.getLogger(__name__)

_REPLIES_A_TURN = 64


@dataclass(slots=True)
class PublisherCounters:
    """Messages since construction."""

    published: int = 0
    replays: int = 0
    replayed: int = 0
    bad_requests: int = 0


class EventPublisher:
    """Publishes one rank's batches.

    Args:
        clock: wall clock, seconds since the epoch.
    """

    def __init__(self, log: BatchLog, sockets: RankSockets, clock: Callable[[], float]) -> None:
        self._log = log
        self._sockets = sockets
        self._clock = clock
        self.counters = PublisherCounters()

    @property
    def last_seq(self) -> int | None:
        """Number of the latest published batch; None before the first."""
        return self._log.last_seq

    def publish(self, events: Sequence[KvEvent]) -> None:
        """Send one batch; nothing for one without events."""
        message = self._log.append(events, self._clock())
        if message is not None:
            self._sockets.pub.send_multipart(live_frames(message), zmq.NOBLOCK)
            self.counters.published += 1

    async def serve_replays(self) -> None:
        """Answer replay requests, one after the other, until cancelled."""
        router = self._sockets.router
        if router is None:
            return
        while True:
            identity, *request = await router.recv_multipart()
            try:
                first_seq = parse_replay_request(request)
            except BadFramesError as error:
                self.counters.bad_requests += 1
                logger.debug("replay request ignored: %s", error)
                continue
            await self._replay(router, identity, first_seq)

    async def _replay(self, router: zmq.asyncio.Socket, identity: bytes, first_seq: int) -> None:
        self.counters.replays += 1
        for index, reply in enumerate(self._log.replay(first_seq)):
            if index % _REPLIES_A_TURN == 0:
                await asyncio.sleep(0)
            await router.send_multipart([identity, *self._log.frames(reply)])
            self.counters.replayed += 1
