"""SIGHUP, told to everybody who then begins anew: certificates are read again, log files opened again."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class HangUp:
    """Listens while there is somebody to tell; otherwise the signal does what it does by itself."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    @contextmanager
    def told_to(self, listener: Callable[[], None]) -> Iterator[None]:
        """Within the block the listener is called at each signal, on the running loop."""
        loop = asyncio.get_running_loop()
        if not self._listeners:
            loop.add_signal_handler(signal.SIGHUP, self._tell)
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
            if not self._listeners:
                loop.remove_signal_handler(signal.SIGHUP)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
