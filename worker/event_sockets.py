"""The event sockets of a worker: a PUB and a ROUTER a rank, at consecutive ports.

Rank r is heard at the first port + r, and replayed likewise. Where the operating system chooses, it
chooses rank 0's port and the others must be free behind it; a few runs are tried.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import zmq
import zmq.asyncio

S = TypeVar("S", zmq.Socket[bytes], zmq.asyncio.Socket)
WILDCARDS = ("0.0.0.0", "*")
_TRIES = 16
_HWM_MARGIN = 64


class EventPortError(OSError):
    """A port for events is taken, or the address cannot be bound."""


@dataclass(frozen=True, slots=True)
class EventAddress:
    """What to bind. A port of None = no such socket, 0 = chosen by the operating system.

    Attributes:
        num_ranks: sockets of each kind.
        buffer_steps: batches that a replay can answer with.
        hwm: messages queued for a slow subscriber.
    """

    host: str
    events_port: int | None
    replay_port: int | None
    num_ranks: int
    buffer_steps: int
    hwm: int


@dataclass(frozen=True, slots=True)
class RankSockets:
    """Bound sockets of one rank; ``router`` is None without replay."""

    pub: zmq.Socket[bytes]
    router: zmq.asyncio.Socket | None


class EventSockets:
    """All event sockets of a worker and the context that they live in.

    Attributes:
        ranks: one entry a rank; empty without events.
        events_port, replay_port: of rank 0, as bound; None = there is none.

    Raises:
        EventPortError: an address cannot be bound; nothing stays open then.
    """

    def __init__(self, address: EventAddress) -> None:
        self._address = address
        self._context = zmq.asyncio.Context()
        self._plain = zmq.Context(self._context)  # the same context, for sockets without futures
        self._opened: list[zmq.Socket[bytes] | zmq.asyncio.Socket] = []
        self.ranks: list[RankSockets] = []
        self.events_port: int | None = None
        self.replay_port: int | None = None
        try:
            self._bind()
        except EventPortError:
            self.close()
            raise

    def close(self) -> None:
        """Close every socket; what is queued is dropped."""
        for socket in self._opened:
            socket.close(0)
        self._context.term()

    def _bind(self) -> None:
        address = self._address
        if address.events_port is None:
            return
        pubs: list[zmq.Socket[bytes]]
        pubs, self.events_port = self._bind_run(self._pub, address.events_port)
        routers: list[zmq.asyncio.Socket | None] = [None] * address.num_ranks
        if address.replay_port is not None:
            bound, self.replay_port = self._bind_run(self._router, address.replay_port)
            routers = [*bound]
        self.ranks = [RankSockets(*pair) for pair in zip(pubs, routers, strict=True)]

    def _pub(self) -> zmq.Socket[bytes]:
        socket = self._plain.socket(zmq.PUB)
        self._opened.append(socket)
        socket.set_hwm(self._address.hwm)
        return socket

    def _router(self) -> zmq.asyncio.Socket:
        socket = self._context.socket(zmq.ROUTER)
        self._opened.append(socket)
        socket.set_hwm(self._address.buffer_steps + _HWM_MARGIN)
        return socket

    def _bind_run(self, make: Callable[[], S], first_port: int) -> tuple[list[S], int]:
        """Bind one socket a rank at consecutive ports: the sockets, and the first port."""
        tries = 1 if first_port else _TRIES
        for attempt in range(1, tries + 1):
            sockets: list[S] = []
            try:
                port = first_port
                for dp_rank in range(self._address.num_ranks):
                    sockets.append(make())
                    port = self._bind_one(sockets[-1], port + 1 if dp_rank else port)
                return sockets, port - self._address.num_ranks + 1
            except zmq.ZMQError as error:
                for socket in sockets:
                    socket.close(0)
                if attempt == tries:
                    raise EventPortError(f"cannot bind an event socket: {error}") from error
        raise AssertionError("no attempt was made")

    def _bind_one(self, socket: zmq.Socket[bytes] | zmq.asyncio.Socket, port: int) -> int:
        host = self._address.host
        if ":" in host:
            socket.set(zmq.IPV6, 1)
            host = f"[{host}]"
        socket.bind(f"tcp://{'*' if host in WILDCARDS else host}:{port}")
        endpoint = socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        return int(endpoint.rstrip(b"\0").rpartition(b":")[2])
