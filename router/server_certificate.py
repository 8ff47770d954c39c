"""Certificates of ports that are exchanged while the ports are open.

A new pair is read into a context of its own, and taken only if it fits: connections that begin get the one that was taken
last, those that are open keep theirs.
"""

import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prompt.file_stamp import stamp_of
from router.file_watch import Reload
from router.listener_tls import ListenerTls


class ServerCertificate:
    """That of one port.

    Attributes:
        context: of the port; each connection that begins is handed over to the newest one.
        stamp: of the files, before they were last read.
        reloads: attempts, by how they ended.
    """

    def __init__(self, tls: ListenerTls) -> None:
        self._tls = tls
        self.stamp = stamp_of(tls.files)
        self._newest = tls.context()
        self.context = tls.context()
        self.context.sni_callback = self._hand_over
        self.reloads: Counter[Reload] = Counter()

    @property
    def files(self) -> tuple[Path, ...]:
        """Certificate and key."""
        return self._tls.files

    def read(self) -> Callable[[], None]:
        """Read the files, on any thread; what it returns takes them, on the loop.

        Raises:
            OSError, ValueError: they do not fit.
        """
        return partial(self._take, self._tls.context())

    def _take(self, context: ssl.SSLContext) -> None:
        self._newest = context

    def _hand_over(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._newest
