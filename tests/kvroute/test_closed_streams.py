"""Commands that are started without standard streams: what they open is not taken for one."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import pytest

SERVE = "serve --host 127.0.0.1 --port 0 --control-port 0"


async def started(words: str, closed: str) -> Process:
    """A command, as a shell starts it that closes these streams."""
    command = f"exec {sys.executable} -m kvroute {words} {closed}"
    env = {"KVROUTE_DRAIN__WINDOW_S": "0", "PATH": "/usr/bin:/bin"}
    return await asyncio.create_subprocess_exec(
        "sh", "-c", command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=env
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
async def test_an_access_log_without_standard_output_is_refused(closed: str) -> None:
    process = await started(f"{SERVE} --access-log json", closed)
    async with asyncio.timeout(30.0):
        _, stderr = await process.communicate()
    said = stderr.decode()
    assert process.returncode == 2, said
    assert "access_log: it goes to standard output, which is closed" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
async def test_a_router_without_standard_output_serves_and_ends_in_order(closed: str) -> None:
    process = await started(SERVE, closed)
    assert process.stderr is not None
    async with asyncio.timeout(30.0):
        while b"data port at" not in (line := await process.stderr.readline()):
            assert line, "it ended"
        process.terminate()
        _, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
