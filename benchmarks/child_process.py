"""A child pinned to one core: started, asked what CPU it spent, always ended.

Every child leads a session of its own, so that what it starts in turn ends with it, and an interrupt from
the terminal reaches only the benchmark, which then ends its children itself.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from urllib.error import URLError
from urllib.request import urlopen

import psutil

ROOT = Path(__file__).parents[1]
_CPUCLOCK_SCHED = 2
_END_WITHIN_S = 10.0


@contextlib.contextmanager
def process(
    arguments: list[str],
    core: int,
    environment: dict[str, str] | None = None,
    executable: str = sys.executable,
) -> Iterator[int]:
    """A child that is on ``core`` from its first instruction; ended, with all its own, at the end.

    Yields:
        Its process id.
    """
    with pinned_to(core):
        child = subprocess.Popen(
            [executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield child.pid
    finally:
        _end(child)


@contextlib.contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """This process, and what it starts meanwhile, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask it to end; after ten seconds, or at a second interrupt, end it, and whatever is left of its session."""
    try:
        child.terminate()
        child.wait(timeout=_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the benchmark as an interrupt does: through every ``finally``."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def cpu_s(pid: int) -> float:
    """CPU time so far of a process, of its threads, those that ended included, and of its living children.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        pids = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        return sum(time.clock_gettime(_cpu_clock(one)) for one in pids)
    except (psutil.NoSuchProcess, OSError) as error:
        raise ProcessLookupError(pid) from error


def _cpu_clock(pid: int) -> int:
    """The clock of a whole process, as clock_getcpuclockid(3) gives it on Linux."""
    return (~pid << 3) | _CPUCLOCK_SCHED


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(one.getsockname()[1]) for one in sockets]


def wait_for(url: str, deadline_s: float = 30) -> None:
    """Until ``url`` answers 200.

    Raises:
        TimeoutError: it did not by the deadline.
    """
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with contextlib.suppress(URLError, OSError), urlopen(url, timeout=2) as answer:  # noqa: S310
            if answer.status == 200:
                return
        time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer 200 within {deadline_s:.0f} s")
