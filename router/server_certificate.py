"""Certificates of ports that are exchanged while the ports are open.

A new pair is read into a context of its own, and taken only if it fits: connections that begin get the one that was taken
last, those that are open keep theirs. Files are looked at every ``CHECK_S``, and at once at SIGHUP.
"""

import asyncio
import logging
import signal
import ssl
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from router.causes import cause_of
from router.listener_tls import ListenerTls

logger = logging.getLogger(__name__)

CHECK_S = 5.0
_Stamp = tuple[tuple[int, int, int], ...]


class Reload(StrEnum):
    """How an attempt to take new files ended."""

    TAKEN = "taken"
    FAILED = "failed"


class ServerCertificate:
    """That of one port.

    Attributes:
        context: of the port; each connection that begins is handed over to the newest one.
        reloads: attempts, by how they ended.
    """

    def __init__(self, tls: ListenerTls) -> None:
        self._tls = tls
        self._stamp = _stamp(tls)
        self._newest = tls.context()
        self.context = tls.context()
        self.context.sni_callback = self._hand_over
        self.reloads: Counter[Reload] = Counter()

    def reload(self, *, only_if_changed: bool) -> str | None:
        """Take the files as they are; reads them. What is wrong with them, if something is."""
        stamp = _stamp(self._tls)
        if only_if_changed and stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            self._newest = self._tls.context()
        except (OSError, ValueError) as error:
            self.reloads[Reload.FAILED] += 1
            return cause_of(error) if isinstance(error, OSError) else str(error)
        self.reloads[Reload.TAKEN] += 1
        return None

    def _hand_over(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._newest


class CertificateWatch:
    """Looks after the certificates of all ports. Listens to SIGHUP where there are any.

    Args:
        certificates: by the port's name.
    """

    def __init__(
        self, certificates: Mapping[str, ServerCertificate], check_s: float = CHECK_S
    ) -> None:
        self._certificates = certificates
        self._check_s = check_s
        self._hung_up = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._certificates:
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hung_up.set)
        try:
            while True:
                await self._look(only_if_changed=not await self._is_told())
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def _is_told(self) -> bool:
        """Wait for the next look; True where SIGHUP asks for it."""
        try:
            async with asyncio.timeout(self._check_s):
                await self._hung_up.wait()
        except TimeoutError:
            return False
        self._hung_up.clear()
        return True

    async def _look(self, *, only_if_changed: bool) -> None:
        """Files are read in a thread: they may lie on a disk that hangs."""
        for name, certificate in self._certificates.items():
            before = certificate.reloads[Reload.TAKEN]
            fault = await asyncio.to_thread(certificate.reload, only_if_changed=only_if_changed)
            if fault is not None:
                logger.warning("the %s port keeps its certificate: %s", name, fault)
            elif certificate.reloads[Reload.TAKEN] > before:
                logger.info("the %s port has read its certificate again", name)


def _stamp(tls: ListenerTls) -> _Stamp:
    """What changes with the files; nothing of one that is missing."""
    found = []
    for path in tls.files:
        try:
            told = path.stat()
        except OSError:
            continue
        found.append((told.st_mtime_ns, told.st_ino, told.st_size))
    return tuple(found)
