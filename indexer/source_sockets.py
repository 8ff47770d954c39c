"""The sockets of one publisher: SUB for live messages, its monitor, a DEALER a replay conversation.

What arrives is queued in the order in which it happened. ZeroMQ tells of a broken connection on another
socket than the one that carries the messages, so the order is made here: whatever the broken connection
brought is received to the end, turn by turn, before the break is queued. If by then a new connection is up
already, nobody can say which one brought a message: then the break comes first, and the stream machine
compares.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

import zmq
from zmq.utils.monitor import parse_monitor_message

from protocol import EventSource, replay_request

SOCKET_FAULTS = (zmq.ZMQError, OSError, ValueError, TypeError)
"""What an endpoint, or a topic, that is none may lead to; UnicodeError is a ValueError."""


class Change(StrEnum):
    """What became of the live connection."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of the sockets and of what is done in one go.

    Attributes:
        max_sockets: of an own ZeroMQ context. A source takes three, and one more during a replay. At
            the bound further sources are not heard; they are counted and tried again.
        io_threads: of an own context. Names are resolved in them, and a slow resolver stops one.
        live_hwm: live messages queued by ZeroMQ for one source. At the bound the publisher queues, and
            at its own bound drops, which shows as a gap.
        replay_hwm: the same for replies. Beyond it the publisher drops, which shows as a hole.
        max_message_bytes: of one frame; a larger one breaks the connection.
        heartbeat_s, heartbeat_timeout_s: a peer that does not answer is given up and looked up anew.
        reconnect_s, reconnect_max_s: wait between attempts, doubling.
        connect_timeout_s: of one attempt.
        other_family_s: without a connection for so long, a name is tried in the other address family.
        messages_per_turn: what one source may take before others get their turn; no more than half of
            a stream's hold has room for.
        turn_s: how long that may take.
        long_bytes: of a payload; a longer one is read in steps.
        tick_s: how often time is told to the intake.
        reopen_s: wait before sockets that could not be opened are tried again.
    """

    max_sockets: int = 16_384
    io_threads: int = 2
    live_hwm: int = 10_000
    replay_hwm: int = 100_000
    max_message_bytes: int = 64 << 20
    heartbeat_s: float = 5.0
    heartbeat_timeout_s: float = 15.0
    reconnect_s: float = 0.1
    reconnect_max_s: float = 5.0
    connect_timeout_s: float = 5.0
    other_family_s: float = 15.0
    messages_per_turn: int = 32
    turn_s: float = 0.003
    long_bytes: int = 32 << 10
    tick_s: float = 0.25
    reopen_s: float = 5.0


DEFAULT_SOCKET_LIMITS = SocketLimits()


class SourceSockets:
    """Sockets of ``source``, watched by the running event loop.

    Args:
        wake: called, on the loop, when something may have arrived.
        number: names the monitor; unique within the context.
        is_ipv6: address family for names.

    Attributes:
        pending: messages and changes that are to be handled, in order.

    Raises:
        SOCKET_FAULTS: endpoint or topic is malformed, or there are no more sockets. None is left open.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        source: EventSource,
        limits: SocketLimits,
        wake: Callable[["SourceSockets"], None],
        number: int,
        *,
        is_ipv6: bool = False,
    ) -> None:
        self.source = source
        self.pending: deque[list[bytes] | Change] = deque()
        self.is_ipv6 = is_ipv6
        self.is_connected = False
        self.is_closed = False
        self._context = context
        self._limits = limits
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()  # of the present state of the connection
        self._open: list[zmq.Socket[bytes]] = []
        self._replay: zmq.Socket[bytes] | None = None
        self._is_break_due = False  # as soon as what came before it is received
        try:
            self._live = self._socket(zmq.SUB, source.endpoint, limits.live_hwm)
            self._live.subscribe(source.topic)
            self._monitor = self._watch_connection(f"inproc://kvroute-live-{number}")
            self._live.connect(source.endpoint)
        except SOCKET_FAULTS:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """Whether a host name has led to no connection for long: its other addresses may."""
        silence_s = self._loop.time() - self._since
        is_name = _is_name(_host(self.source.endpoint))
        return is_name and not self.is_connected and silence_s >= self._limits.other_family_s

    @property
    def is_asking(self) -> bool:
        """Whether a replay conversation is open."""
        return self._replay is not None

    def collect(self, *, is_crowded: bool = False) -> bool:
        """Queue some of what has arrived, a turn's share at most; False where more is to be collected.

        Args:
            is_crowded: messages can wait. They do, unless a break waits behind them.
        """
        messages: list[list[bytes]] = []
        is_drained = True
        if self._is_break_due or not is_crowded:
            messages, is_drained = self._receive(self._live, self._limits.messages_per_turn)
        changes = self._changes()
        is_break_over = self._is_break_due and is_drained and not changes
        if self._is_break_due and changes:
            self.pending.append(Change.DISCONNECTED)
        if changes:
            self.is_connected = changes[-1] is Change.CONNECTED
            self._since = self._loop.time()
            self._is_break_due = not self.is_connected
        self.pending.extend(changes[:-1] if self._is_break_due else changes)
        self.pending.extend(messages)
        if is_break_over:
            self._is_break_due = False
            self.pending.append(Change.DISCONNECTED)
        return is_drained and not self._is_break_due

    def ask(self, first_seq: int) -> None:
        """Begin a replay conversation; one that is open ends.

        Raises:
            SOCKET_FAULTS: the socket cannot be opened, or the source has no replay endpoint.
        """
        self.end_replay()
        endpoint = self.source.replay_endpoint
        if endpoint is None:
            raise zmq.ZMQError(zmq.EINVAL)
        replay = self._replay = self._socket(zmq.DEALER, endpoint, self._limits.replay_hwm)
        replay.connect(endpoint)
        replay.send_multipart(replay_request(first_seq), zmq.NOBLOCK)
        self._wake(self)  # sending may have consumed the socket's signal

    def next_reply(self) -> list[bytes] | None:
        """The next message of the open conversation; None where there is none yet, or a break is due."""
        if self._replay is None or self._is_break_due:
            return None
        received, _ = self._receive(self._replay, 1)
        return received[0] if received else None

    def end_replay(self) -> None:
        """Close the conversation; replies on their way are dropped with it."""
        if self._replay is not None:
            self._close(self._replay)
            self._replay = None

    def close(self) -> None:
        """Close all sockets, without waiting. Idempotent."""
        self.is_closed = True
        self.pending.clear()
        self._replay = None
        for socket in tuple(self._open):
            self._close(socket)

    def _receive(
        self, socket: zmq.Socket[bytes], max_messages: int
    ) -> tuple[list[list[bytes]], bool]:
        """Up to ``max_messages``, and whether that were all; only then the socket signals again."""
        received: list[list[bytes]] = []
        while len(received) < max_messages:
            try:
                received.append(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return received, True
        return received, False

    def _changes(self) -> list[Change]:
        changes: list[Change] = []
        while True:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return changes
            event = parse_monitor_message(frames)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                changes.append(Change.CONNECTED)
            elif event == zmq.EVENT_DISCONNECTED:
                changes.append(Change.DISCONNECTED)

    def _socket(self, kind: int, endpoint: str, receive_hwm: int) -> zmq.Socket[bytes]:
        limits = self._limits
        socket = self._context.socket(kind)
        self._open.append(socket)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVHWM, receive_hwm)
        socket.set(zmq.MAXMSGSIZE, limits.max_message_bytes)
        socket.set(zmq.IPV6, int(self.is_ipv6 or ":" in _host(endpoint)))
        socket.set(zmq.HEARTBEAT_IVL, _ms(limits.heartbeat_s))
        socket.set(zmq.HEARTBEAT_TIMEOUT, _ms(limits.heartbeat_timeout_s))
        socket.set(zmq.CONNECT_TIMEOUT, _ms(limits.connect_timeout_s))
        socket.set(zmq.RECONNECT_IVL, _ms(limits.reconnect_s))
        socket.set(zmq.RECONNECT_IVL_MAX, _ms(limits.reconnect_max_s))
        self._loop.add_reader(socket.FD, self._wake, self)
        return socket

    def _watch_connection(self, address: str) -> zmq.Socket[bytes]:
        self._live.monitor(address, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        monitor = self._context.socket(zmq.PAIR)
        self._open.append(monitor)
        monitor.set(zmq.LINGER, 0)
        monitor.connect(address)
        self._loop.add_reader(monitor.FD, self._wake, self)
        return monitor

    def _close(self, socket: zmq.Socket[bytes]) -> None:
        self._open.remove(socket)
        self._loop.remove_reader(socket.FD)
        socket.close(0)


def _ms(seconds: float) -> int:
    return round(seconds * 1e3)


def _host(endpoint: str) -> str:
    return endpoint.partition("://")[2].rpartition(":")[0].strip("[]")


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return bool(host)
    return False
