"""Files that are read again while the router runs: certificates of ports, keys of clients.

    a change, within ``CHECK_S`` ─┐
    SIGHUP ───────────────────────┴▶ read, in a thread ─┬─ good ▶ taken, at once and as a whole
                                                        └─ bad ▶ told and counted; what there was stays

A file that changes while it is read is not taken, but looked at again. What is no whole file reads as a bad one, unless it is cut
where it could end: whoever writes one by renaming is safe from that.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from prompt.file_stamp import Stamp, stamp_of
from router.causes import cause_of
from router.hang_up import HangUp

logger = logging.getLogger(__name__)

CHECK_S = 5.0


class Reload(StrEnum):
    """How an attempt to take new files ended."""

    TAKEN = "taken"
    FAILED = "failed"


class Reloaded(Protocol):
    """What is made of files.

    Attributes:
        stamp: of the files, before they were last read.
        reloads: attempts, by how they ended.
    """

    stamp: Stamp
    reloads: Counter[Reload]

    @property
    def files(self) -> tuple[Path, ...]:
        """All that are read."""

    def read(self) -> Callable[[], None]:
        """Read the files, on any thread.

        Returns:
            What takes them, to be called on the loop.

        Raises:
            OSError, ValueError: they do not fit.
        """


class FileWatch:
    """Looks after all of them. Listens to SIGHUP where there are any.

    Args:
        watched: by what the log calls them.
        hang_up: tells of SIGHUP.
    """

    def __init__(
        self, watched: Mapping[str, Reloaded], hang_up: HangUp, check_s: float = CHECK_S
    ) -> None:
        self._watched = watched
        self._hang_up = hang_up
        self._check_s = check_s
        self._hung_up = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._watched:
            return
        with self._hang_up.told_to(self._hung_up.set):
            while True:
                is_told = await self._is_told()
                for name, one in self._watched.items():
                    await _look(name, one, only_if_changed=not is_told)

    async def _is_told(self) -> bool:
        """Wait for the next look; True where SIGHUP asks for it."""
        try:
            async with asyncio.timeout(self._check_s):
                await self._hung_up.wait()
        except TimeoutError:
            return False
        self._hung_up.clear()
        return True


async def _look(name: str, one: Reloaded, *, only_if_changed: bool) -> None:
    """Files are read in a thread: they may lie on a disk that hangs."""
    stamp = await asyncio.to_thread(stamp_of, one.files)
    if only_if_changed and stamp == one.stamp:
        return
    take: Callable[[], None] | None = None
    fault = ""
    try:
        take = await asyncio.to_thread(one.read)
    except (OSError, ValueError) as error:
        fault = cause_of(error) if isinstance(error, OSError) else str(error)
    if await asyncio.to_thread(stamp_of, one.files) != stamp:
        return  # they change as they are read; the stamp stays, so that they are looked at again
    one.stamp = stamp
    if take is None:
        one.reloads[Reload.FAILED] += 1
        logger.warning("%s stays as it was: %s", name, fault)
        return
    take()
    one.reloads[Reload.TAKEN] += 1
    logger.info("%s was read again", name)
