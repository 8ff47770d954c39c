"""A small HTTP server in this process, and the command line as a child process."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from loadgen import free_ports

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[str, None]:
    """Serve every path with the handler; yields the base URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    (port,) = free_ports(1)
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


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
