"""How much may wait at a socket: ZeroMQ counts messages, memory counts bytes.

The longest message of late says how many fit the bound; that many, rounded down to a power of two, is what ZeroMQ may
queue. What was queued before the first long message came stays queued.
"""

import zmq

_WINDOW = 256  # messages that "of late" means, at least, and twice as many at most


class QueueRoom:
    """The bound of one socket's queue.

    Args:
        max_messages: the bound by number, as the socket has it.
        max_bytes: the bound by size; one message fits always.
    """

    __slots__ = ("_before", "_left", "_longest", "_max_bytes", "_max_messages", "_room", "_socket")

    def __init__(self, socket: zmq.Socket[bytes], max_messages: int, max_bytes: int) -> None:
        self._socket = socket
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._room = max_messages
        self._longest = self._before = 0  # of this window, and of the one before
        self._left = _WINDOW

    @property
    def num_messages(self) -> int:
        """How many may wait."""
        return self._room

    def note(self, size_bytes: int) -> None:
        """A message of so many bytes was received. O(1)."""
        self._left -= 1
        if size_bytes > self._longest:
            self._longest = size_bytes
            self._settle()
        elif self._left <= 0:
            self._settle()

    def _settle(self) -> None:
        longest = max(self._longest, self._before, 1)
        if self._left <= 0:
            self._before, self._longest, self._left = self._longest, 0, _WINDOW
        fitting = max(self._max_bytes // longest, 1)
        room = self._max_messages
        if fitting < room:
            room = 1 << (fitting.bit_length() - 1)
        if room != self._room:
            self._room = room
            self._socket.set(zmq.RCVHWM, room)
