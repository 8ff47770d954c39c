"""One child process of the command line: its log, its readiness, its end.

A child runs in a process group of its own, so that Ctrl-C in a terminal reaches the parent alone, which
then ends the children in order: SIGTERM, and SIGKILL after a grace. Python puts no directory of its own in
front of the installed packages (``-P``), so a file of the same name where the command is given does no harm.
The child's stdin is a pipe whose end tells it that the parent is gone, killed or not: then it ends by itself.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

_POLL_S = 0.05
_TAIL_BYTES = 4096


class ChildError(Exception):
    """A child ended early or was not ready in time. The message ends with the tail of its log."""


class Child:
    """A child process as a context: started on entry, ended on exit whatever happened inside."""

    def __init__(self, name: str, arguments: Sequence[str], log_path: Path) -> None:
        self.name = name
        self._arguments = tuple(arguments)
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process; None before the start."""
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "kvroute.child",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.end()

    async def end(self, grace_s: float = 5.0) -> None:
        """Ask it to end, then make it. Idempotent; a second cancellation kills at once."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await process.wait()
        except (TimeoutError, asyncio.CancelledError) as error:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def wait_ready(self, session: aiohttp.ClientSession, url: str, deadline_s: float) -> None:
        """Wait until ``GET url`` answers 200.

        Raises:
            ChildError: the process ended, or the deadline passed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        while loop.time() < deadline:
            if self._process is not None and self._process.returncode is not None:
                raise self._error(f"ended with code {self._process.returncode}")
            if await _answers(session, url):
                return
            await asyncio.sleep(_POLL_S)
        raise self._error(f"was not ready at {url} within {deadline_s:.0f} s")

    def log_tail(self) -> str:
        """The last lines of its log."""
        try:
            log = self._log_path.read_bytes()
        except OSError:
            return ""
        return log[-_TAIL_BYTES:].decode(errors="replace").strip()

    def _error(self, what: str) -> ChildError:
        return ChildError(f"{self.name} {what}; its log ({self._log_path}):\n{self.log_tail()}")


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2.0)) as response:
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
