"""A fleet that is interrupted leaves no process behind."""

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
    return Path(f"/proc/{pid}").exists()


async def wait_for_children(pid: int, count: int) -> set[int]:
    async with asyncio.timeout(30.0):
        while len(children := children_of(pid)) < count:  # noqa: ASYNC110  # another process's
            await asyncio.sleep(0.02)
    return children


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_all_children_are_gone(number: signal.Signals, code: int) -> None:
    demo = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvroute",
        "demo",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    children = await wait_for_children(demo.pid, 4)
    demo.send_signal(number)
    async with asyncio.timeout(20.0):
        assert await demo.wait() == code
    assert not [child for child in children if is_running(child)]
