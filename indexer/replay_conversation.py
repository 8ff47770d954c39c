"""A DEALER socket a replay conversation: opened to ask, closed with the last reply."""

from collections.abc import Callable

import zmq

from indexer.queue_room import QueueRoom
from indexer.socket_limits import SocketLimits
from indexer.watched_sockets import WatchedSockets, at_address, host_of
from protocol import EventSource, replay_request

AddressOf = Callable[[str], str | None]
"""Host name to the address to use; None leaves the look-up to ZeroMQ. Raises one of `SOCKET_FAULTS` where it may not be used."""


def unknown_address(_host: str) -> str | None:
    """No name has been looked up."""
    return None


class ReplayConversation:
    """At most one conversation with the publisher of ``source``.

    Args:
        wake: called, on the loop, when something may have arrived.
    """

    def __init__(
        self,
        sockets: WatchedSockets,
        source: EventSource,
        limits: SocketLimits,
        address_of: AddressOf,
        wake: Callable[[], None],
    ) -> None:
        self._sockets = sockets
        self._endpoint = source.replay_endpoint
        self._limits = limits
        self._address_of = address_of
        self._wake = wake
        self._socket: zmq.Socket[bytes] | None = None
        self._room: QueueRoom | None = None

    @property
    def is_open(self) -> bool:
        """Whether replies may still come."""
        return self._socket is not None

    def ask(self, first_seq: int) -> None:
        """Begin a conversation; one that is open ends.

        Raises:
            SOCKET_FAULTS: the socket cannot be opened, or the source has no replay endpoint.
        """
        self.end()
        if self._endpoint is None:
            raise zmq.ZMQError(zmq.EINVAL)
        address = self._address_of(host_of(self._endpoint))
        endpoint = self._endpoint if address is None else at_address(self._endpoint, address)
        limits = self._limits
        socket = self._socket = self._sockets.open(zmq.DEALER, endpoint, limits.replay_hwm)
        self._room = QueueRoom(socket, limits.replay_hwm, limits.replay_bytes)
        socket.connect(endpoint)
        socket.send_multipart(replay_request(first_seq), zmq.NOBLOCK)
        self._wake()  # sending may have consumed the socket's signal

    def next_reply(self) -> list[bytes] | None:
        """The next message of the open conversation; None where there is none yet."""
        if self._socket is None or self._room is None:
            return None
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self._room.note(sum(map(len, frames)))
        return frames

    def end(self) -> None:
        """Close the conversation; replies on their way are dropped with it."""
        if self._socket is not None:
            self._sockets.close(self._socket)
            self._socket = None
