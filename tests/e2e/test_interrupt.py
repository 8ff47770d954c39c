"""A fleet that is interrupted, or whose parent is killed, leaves no process behind."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.needs import lacking

pytestmark = pytest.mark.e2e


def children_of(pid: int) -> set[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        lacking("needs Linux's list of child processes")
    return {int(child) for child in path.read_text().split()}


def is_running(pid: int) -> bool:
    """Ended and not yet waited for is ended: an orphan may have a parent that waits for none."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def start_demo() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvroute",
        "demo",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def wait_for_children(pid: int, count: int) -> set[int]:
    async with asyncio.timeout(30.0):
        while len(children := children_of(pid)) < count:  # noqa: ASYNC110  # another process's
            await asyncio.sleep(0.02)
    return children


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_all_children_are_gone(number: signal.Signals, code: int) -> None:
    demo = await start_demo()
    children = await wait_for_children(demo.pid, 4)
    demo.send_signal(number)
    async with asyncio.timeout(20.0):
        assert await demo.wait() == code
    assert not [child for child in children if is_running(child)]


async def test_children_end_by_themselves_when_their_parent_is_killed() -> None:
    demo = await start_demo()
    children = await wait_for_children(demo.pid, 4)
    demo.kill()
    await demo.wait()
    async with asyncio.timeout(15.0):
        while any(is_running(child) for child in children):  # noqa: ASYNC110  # another process's
            await asyncio.sleep(0.02)
