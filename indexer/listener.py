"""An endpoint that we bind and publishers connect to: one SUB socket, and who speaks on which connection.

Several publishers may connect to one endpoint; a message is told apart by its topic alone. A topic has parts,
separated by ``@``, and a source is meant by the leading parts that are its own:

    source kv@10.0.0.1    hears kv@10.0.0.1@llama, not kv@10.0.0.11@llama
    source (no topic)     hears whatever is nobody else's

ZeroMQ says which connection a message came by and which one broke, not whose it is. So a source has the
connection that its last message came by; a message by another one is a reconnect, and so is the break of its
own. Before it has spoken, any new connection may be its publisher's: it counts as connected then, so that
its replay is asked for at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

import zmq
from zmq.utils.monitor import parse_monitor_message

from indexer.queue_room import QueueRoom
from indexer.replay_conversation import AddressOf, ReplayConversation, unknown_address
from indexer.socket_limits import SocketLimits
from indexer.source_sockets import Change
from indexer.watched_sockets import SOCKET_FAULTS, WatchedSockets
from protocol import EventSource

_Context = zmq.Context[zmq.Socket[bytes]]
_Parts = tuple[str, ...]
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


def topic_parts(topic: str) -> _Parts:
    """The parts of a topic; none where it is empty."""
    return tuple(topic.rstrip("@").split("@")) if topic.rstrip("@") else ()


class HeardSource:
    """One source of a listener, with the face of ``SourceSockets``.

    Attributes:
        replay: the replay conversation.
        connection: descriptor that its last message came by; None before the first.
    """

    address: str | None = None
    lost_s = 0.0  # there is no name to look up
    is_given_up = False  # it is the publisher that connects

    def __init__(
        self,
        listener: "Listener",
        source: EventSource,
        wake: Callable[["HeardSource"], None],
        address_of: AddressOf = unknown_address,
    ) -> None:
        self.source = source
        self.pending: deque[list[bytes] | Change] = deque()
        self.is_connected = False
        self.is_closed = False
        self.connection: int | None = None
        self._listener = listener
        self._limits = listener.limits
        self._wake = wake
        self._inbox: deque[list[bytes] | Change] = deque()
        self._inbox_bytes = 0
        self._num_breaks = 0  # in the inbox
        woken = partial(wake, self)
        self._sockets = WatchedSockets(listener.context, self._limits, woken)
        self.replay = ReplayConversation(self._sockets, source, self._limits, address_of, woken)
        listener.add(self)

    def collect(self, *, is_crowded: bool = False) -> bool:
        """Queue some of what has arrived, a turn's share at most; False where more is to be collected.

        Args:
            is_crowded: messages can wait. They do, unless a break waits behind them.
        """
        if is_crowded and not self._num_breaks:
            return True
        for _ in range(min(len(self._inbox), self._limits.messages_per_turn)):
            arrived = self._inbox.popleft()
            self._inbox_bytes -= 0 if isinstance(arrived, Change) else sum(map(len, arrived))
            self._num_breaks -= arrived is Change.DISCONNECTED
            self.pending.append(arrived)
        return not self._inbox

    def next_reply(self) -> list[bytes] | None:
        """The next message of the open conversation; None where there is none yet, or a break is due."""
        return None if self._num_breaks else self.replay.next_reply()

    def close(self) -> None:
        """Hear nothing more. Idempotent."""
        if not self.is_closed:
            self._listener.remove(self)
        self.is_closed = True
        self.pending.clear()
        self._inbox.clear()
        self._inbox_bytes = 0
        self.replay.end()
        self._sockets.close_all()

    # What the listener tells

    def hear(self, frames: list[bytes], connection: int) -> bool:
        """A message came by a connection; False where as many as are allowed wait here already."""
        if self.connection not in (None, connection):
            self.on_broken()
        self.connection = connection
        self.on_met()
        size_bytes = self._inbox_bytes + sum(map(len, frames))
        has_room = len(self._inbox) < self._limits.live_hwm and (
            size_bytes <= self._limits.live_bytes or not self._inbox_bytes
        )
        if has_room:
            self._inbox.append(frames)
            self._inbox_bytes = size_bytes
        self._wake(self)
        return has_room

    def on_met(self) -> None:
        """Its publisher is connected, or may be."""
        if not self.is_connected:
            self.is_connected = True
            self._inbox.append(Change.CONNECTED)
            self._wake(self)

    def on_broken(self) -> None:
        """Its connection broke; one that brought nothing was none. So changes stay as few as messages."""
        self.connection = None
        if not self.is_connected:
            return
        self.is_connected = False
        if self._inbox and self._inbox[-1] is Change.CONNECTED:
            self._inbox.pop()
            return
        self._num_breaks += 1
        self._inbox.append(Change.DISCONNECTED)
        self._wake(self)


class Listener:
    """One bound endpoint and its sources.

    Args:
        name: of the monitor; unique within the context.

    Attributes:
        num_foreign: messages with a topic of no source.
        num_dropped: messages beyond what may wait for their source; a gap shows them.

    Raises:
        SOCKET_FAULTS: the endpoint is malformed or taken, or there are no more sockets.
    """

    def __init__(self, context: _Context, endpoint: str, limits: SocketLimits, name: str) -> None:
        self.context = context
        self.endpoint = endpoint
        self.limits = limits
        self.num_foreign = 0
        self.num_dropped = 0
        self._sources: dict[_Parts, HeardSource] = {}
        self._unclaimed: set[int] = set()  # connections that nothing has been heard by
        self._ending: set[int] = set()  # broken, with messages perhaps still to be received
        self._is_closed = False
        self._sockets = WatchedSockets(context, limits, self._drain)
        try:
            self._live = self._sockets.open(zmq.SUB, endpoint, limits.live_hwm)
            self._room = QueueRoom(self._live, limits.live_hwm, limits.live_bytes)
            self._live.set(zmq.IPV6, 1)  # a wildcard stands for both families
            self._monitor = self._sockets.monitor(self._live, name, _EVENTS)
            self._live.bind(endpoint)
        except SOCKET_FAULTS:
            self._sockets.close_all()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether nobody is listened for."""
        return not self._sources

    def add(self, heard: HeardSource) -> None:
        """Listen for one more source.

        Raises:
            ValueError: another source has its topic.
        """
        parts = topic_parts(heard.source.topic)
        if parts in self._sources:
            raise ValueError(f"another worker listens at {self.endpoint} for its topic")
        self._live.subscribe(heard.source.topic)
        self._sources[parts] = heard
        if self._unclaimed:
            heard.on_met()

    def remove(self, heard: HeardSource) -> None:
        """Listen no more for a source; the endpoint stays bound."""
        parts = topic_parts(heard.source.topic)
        if self._sources.get(parts) is heard:
            del self._sources[parts]
            self._live.unsubscribe(heard.source.topic)

    def close(self) -> None:
        """Unbind, without waiting."""
        self._is_closed = True
        self._sockets.close_all()

    def _drain(self) -> None:
        """Hand on a turn's share of what has arrived, and come back for more."""
        if self._is_closed:
            return
        messages, is_drained = self._receive()
        self._follow_connections()
        for connection, frames in messages:
            self._hand_on(connection, frames)
        if is_drained:
            for connection in tuple(self._ending):
                self._on_broken(connection)
        else:
            asyncio.get_running_loop().call_soon(self._drain)

    def _receive(self) -> tuple[list[tuple[int, list[bytes]]], bool]:
        """Messages with their connections, and whether that were all."""
        received: list[tuple[int, list[bytes]]] = []
        limits, size_bytes = self.limits, 0
        while len(received) < limits.messages_per_turn and size_bytes < limits.turn_bytes:
            try:
                frames = self._live.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return received, True
            connection = frames[0].get(zmq.SRCFD)
            received.append((int(connection), [frame.bytes for frame in frames]))
            size = sum(map(len, frames))
            size_bytes += size
            self._room.note(size)
        return received, False

    def _follow_connections(self) -> None:
        while True:
            try:
                told = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            connection = told["value"]
            match told["event"]:
                case zmq.EVENT_ACCEPTED:
                    if connection in self._ending:  # the number is another connection's now
                        self._on_broken(connection)
                    self._unclaimed.add(connection)
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._meet()
                case zmq.EVENT_DISCONNECTED:
                    self._ending.add(connection)

    def _hand_on(self, connection: int, frames: list[bytes]) -> None:
        parts = topic_parts(frames[0].decode("utf-8", "replace"))
        for length in range(len(parts), -1, -1):
            heard = self._sources.get(parts[:length])
            if heard is not None:
                self._unclaimed.discard(connection)
                self.num_dropped += not heard.hear(frames, connection)
                return
        self.num_foreign += 1

    def _on_broken(self, connection: int) -> None:
        """Whoever spoke by it is not connected; nor is one that was only presumed to be."""
        self._ending.discard(connection)
        if connection in self._unclaimed:
            self._unclaimed.discard(connection)
            broken = [one for one in self._sources.values() if one.connection is None]
        else:
            broken = [one for one in self._sources.values() if one.connection == connection]
        for heard in broken:
            heard.on_broken()
        if self._unclaimed:
            self._meet()

    def _meet(self) -> None:
        """A publisher is there: each source that misses its own may be its."""
        for heard in self._sources.values():
            heard.on_met()
