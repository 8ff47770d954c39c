"""Where lines of a log go: a file that may be rotated under its writer, or the process's standard output."""

import os
from pathlib import Path
from typing import Protocol

_MODE = 0o640
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class Sink(Protocol):
    """Where lines go."""

    def write(self, data: memoryview) -> int:
        """Write some of it; how many bytes.

        Raises:
            OSError: nothing can be written.
        """

    def renew(self, *, always: bool) -> None:
        """Begin anew, if there is need to, or ``always``.

        Raises:
            OSError: that cannot be done; it goes on where it was.
        """

    def close(self) -> None:
        """Write nothing more."""


class StandardOutput:
    """The process's own; whoever reads it rotates it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: memoryview) -> int:
        """As `Sink` says."""
        return os.write(self._descriptor, data)

    def renew(self, *, always: bool) -> None:
        """It has no other beginning."""

    def close(self) -> None:
        """It is not this log's to close."""


class LogFile:
    """A file that is appended to.

    Raises:
        OSError: it cannot be opened. A pipe that nobody reads cannot; to wait for a reader would hold up the router.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()

    def write(self, data: memoryview) -> int:
        """As `Sink` says."""
        return os.write(self._descriptor, data)

    def renew(self, *, always: bool) -> None:
        """Open it under its name, if that is no longer the file that is open."""
        if not always and self._is_in_place():
            return
        opened = self._open()
        os.close(self._descriptor)
        self._descriptor = opened

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def _open(self) -> int:
        descriptor = os.open(self._path, _FLAGS, _MODE)
        os.set_blocking(descriptor, True)
        return descriptor

    def _is_in_place(self) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._descriptor))
