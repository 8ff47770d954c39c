"""Lines on their way from the event loop to the thread that writes them: bounded, and counted where there is no room."""

import threading
from collections import Counter
from enum import StrEnum


class LineFate(StrEnum):
    """What became of a line."""

    WRITTEN = "written"
    NO_ROOM = "no_room"  # writing is slower than requests come, or stands still
    NOT_WRITABLE = "not_writable"  # the disk is full, the reader has gone, …


class LineBuffer:
    """At ``max_bytes`` a further line is dropped and counted.

    ``add`` is called on one thread and ``take`` on another; a lock is held for a few instructions.

    Attributes:
        fates: of all lines that have one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self.fates: Counter[LineFate] = Counter()

    def add(self, line: bytes) -> bool:
        """Keep a line, if there is room: O(1).

        Returns:
            Whether it is the first since the last ``take``, so that somebody should come for it.
        """
        with self._lock:
            if self._size_bytes + len(line) > self._max_bytes:
                self.fates[LineFate.NO_ROOM] += 1
                return False
            self._lines.append(line)
            self._size_bytes += len(line)
            return len(self._lines) == 1

    def take(self) -> list[bytes]:
        """All lines, which are the caller's from here on."""
        with self._lock:
            lines, self._lines, self._size_bytes = self._lines, [], 0
        return lines

    def count(self, fate: LineFate, num_lines: int) -> None:
        """Lines that were taken have this fate."""
        with self._lock:
            if num_lines:
                self.fates[fate] += num_lines

    def check(self) -> None:
        """Verify the bound, and that the size is that of the lines."""
        with self._lock:
            size = sum(map(len, self._lines))
            assert self._size_bytes == size <= self._max_bytes, (self._size_bytes, size)
