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
from enum import StrEnum
from functools import partial

import zmq
from zmq.utils.monitor import parse_monitor_message

from indexer.queue_room import QueueRoom
from indexer.replay_conversation import AddressOf, ReplayConversation, unknown_address
from indexer.socket_limits import SocketLimits
from indexer.watched_sockets import SOCKET_FAULTS, WatchedSockets, at_address, host_of
from protocol import EventSource

_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED


class Change(StrEnum):
    """What became of the live connection."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


class SourceSockets:
    """Sockets of ``source``, watched by the running event loop.

    Args:
        wake: called, on the loop, when something may have arrived.
        number: names the monitor; unique within the context.
        address_of: addresses of host names; asked for that of the endpoint at once, and for the replay's with each request.

    Attributes:
        pending: messages and changes that are to be handled, in order.
        replay: the replay conversation.
        address: what the host's name led to; None where ZeroMQ looks it up, or the host is no name.

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
        address_of: AddressOf = unknown_address,
    ) -> None:
        self.source = source
        self.pending: deque[list[bytes] | Change] = deque()
        self.address = address_of(host_of(source.endpoint))
        self.is_connected = False
        self.is_closed = False
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()  # of the present state of the connection
        woken = partial(wake, self)
        self._sockets = WatchedSockets(context, limits, woken)
        self.replay = ReplayConversation(self._sockets, source, limits, address_of, woken)
        self._is_retrying = True  # ZeroMQ is, while there is no connection
        self._is_break_due = False  # as soon as what came before it is received
        endpoint = source.endpoint
        if self.address is not None:
            endpoint = at_address(endpoint, self.address)
        try:
            self._live = self._sockets.open(zmq.SUB, endpoint, limits.live_hwm)
            self._room = QueueRoom(self._live, limits.live_hwm, limits.live_bytes)
            self._live.subscribe(source.topic)
            self._monitor = self._sockets.monitor(self._live, f"live-{number}", _EVENTS)
            self._live.connect(endpoint)
        except SOCKET_FAULTS:
            self.close()
            raise

    @property
    def lost_s(self) -> float:
        """For how long there has been no connection; 0 while there is one."""
        return 0.0 if self.is_connected else self._loop.time() - self._since

    @property
    def is_given_up(self) -> bool:
        """Whether ZeroMQ connects no more: the peer sent what no peer may, such as a frame that is too large."""
        return not self._is_retrying and self.lost_s >= self._limits.reopen_s

    def collect(self, *, is_crowded: bool = False) -> bool:
        """Queue some of what has arrived, a turn's share at most; False where more is to be collected.

        Args:
            is_crowded: messages can wait. They do, unless a break waits behind them.
        """
        messages: list[list[bytes]] = []
        is_drained = True
        if self._is_break_due or not is_crowded:
            messages, is_drained = self._receive(self._limits.messages_per_turn)
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

    def next_reply(self) -> list[bytes] | None:
        """The next message of the open conversation; None where there is none yet, or a break is due."""
        return None if self._is_break_due else self.replay.next_reply()

    def close(self) -> None:
        """Close all sockets, without waiting. Idempotent."""
        self.is_closed = True
        self.pending.clear()
        self.replay.end()
        self._sockets.close_all()

    def _receive(self, max_messages: int) -> tuple[list[list[bytes]], bool]:
        """Up to ``max_messages``, and whether that were all; only then the socket signals again."""
        received: list[list[bytes]] = []
        size_bytes = 0
        while len(received) < max_messages and size_bytes < self._limits.turn_bytes:
            try:
                frames = self._live.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return received, True
            received.append(frames)
            size = sum(map(len, frames))
            size_bytes += size
            self._room.note(size)
        return received, False

    def _changes(self) -> list[Change]:
        changes: list[Change] = []
        while True:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return changes
            event = parse_monitor_message(frames)["event"]
            self._is_retrying = event != zmq.EVENT_DISCONNECTED
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                changes.append(Change.CONNECTED)
            elif event == zmq.EVENT_DISCONNECTED:
                changes.append(Change.DISCONNECTED)
