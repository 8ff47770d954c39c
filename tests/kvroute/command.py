"""The command line as a child process."""

import asyncio
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


async def kvroute(*arguments: str, timeout_s: float = 60.0) -> Ended:
    """Run ``kvroute`` with the arguments to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvroute",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, stdout.decode(), stderr.decode())
