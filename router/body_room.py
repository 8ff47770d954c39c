"""How much memory the bodies of all requests may take together: few clients could fill it with a few large ones each.

A body is held until its answer has ended, for it may be sent again. Those of up to ``SMALL_BYTES`` are not counted: the bound
of requests in flight bounds them. At the bound a further large body is refused.
"""

SMALL_BYTES = 64 * 1024


class NoRoomError(Exception):
    """The bodies that are held take all the room there is."""


class BodyRoom:
    """Counts bytes.

    Attributes:
        held_bytes: of large bodies at the moment.
    """

    __slots__ = ("_max_bytes", "held_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0

    def grow(self, before: int, after: int) -> None:
        """A body that had so many bytes has so many.

        Raises:
            NoRoomError: there is no room for them; nothing has changed.
        """
        more = _counted(after) - _counted(before)
        if self.held_bytes + more > self._max_bytes:
            raise NoRoomError
        self.held_bytes += more

    def release(self, num_bytes: int) -> None:
        """A body of so many bytes is held no more."""
        self.held_bytes -= _counted(num_bytes)

    def check(self) -> None:
        """Verify the invariants."""
        assert 0 <= self.held_bytes <= self._max_bytes, self.held_bytes


class Held:
    """One body's share of the room, released when the block fails; else it is the caller's to release.

    Args:
        room: None where bodies are not counted.
    """

    __slots__ = ("_num_bytes", "_room")

    def __init__(self, room: BodyRoom | None) -> None:
        self._room = room
        self._num_bytes = 0

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._room is not None:
            self._room.release(self._num_bytes)

    def grow(self, num_bytes: int) -> None:
        """The body has so many bytes.

        Raises:
            NoRoomError: there is no room for them.
        """
        if self._room is not None:
            self._room.grow(self._num_bytes, num_bytes)
        self._num_bytes = num_bytes


def _counted(num_bytes: int) -> int:
    return num_bytes if num_bytes > SMALL_BYTES else 0
