"""A message whose payload is read in steps, because one go would take too long."""

from protocol import BatchScan

_EVENTS_AT_ONCE = 64


class LongReading:
    """One live message or reply on its way.

    Attributes:
        is_live: it came by the live socket.
    """

    def __init__(self, frames: list[bytes], *, is_live: bool) -> None:
        self.is_live = is_live
        self._frames = frames
        self._scan = BatchScan(frames[-1])

    def proceed(self) -> bool:
        """Read 64 events more, or 128 KiB of them; True when nothing is left."""
        return self._scan.proceed(_EVENTS_AT_ONCE)

    def frames(self) -> list[bytes]:
        """The frames, with what was read."""
        return [*self._frames[:-1], self._scan.payload()]
