"""A router as a process: its access log on standard output, its own log apart, and files that are rotated under it."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.e2e
BOUND_S = 20.0


@asynccontextmanager
async def router(*flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A router without workers, and the URL of its data port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroute", "serve",
        *("--host", "127.0.0.1", "--port", "0", "--control-port", "0", *flags),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"KVROUTE_DRAIN__WINDOW_S": "0", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            while not (said := re.search(rb"data port at (\S+)", await process.stderr.readline())):
                assert process.returncode is None
        yield process, said[1].decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """What it said to its end."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(BOUND_S):
        said = await process.communicate()
    assert process.returncode == 0, said[1].decode()
    return said


async def test_standard_output_has_a_line_a_request_and_nothing_else() -> None:
    async with router("--access-log", "json") as (process, url):
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/v1/models?key=hidden")).status_code == 200
            assert (
                await client.post("/v1/completions", content=b"secret prompt")
            ).status_code == 400
            assert (await client.get("/health")).status_code == 200
        stdout, stderr = await ended(process)
    told = [json.loads(line) for line in stdout.splitlines()]
    assert [(one["path"], one["status"], one["outcome"]) for one in told] == [
        ("/v1/models", 200, "answered"),
        ("/v1/completions", 400, "refused"),
    ]
    for hidden in (b"hidden", b"secret prompt"):
        assert hidden not in stdout + stderr
    assert b"/v1/models" not in stderr


def moved(path: Path) -> Path:
    return path.rename(path.with_suffix(".1"))


def paths_in(path: Path) -> list[str]:
    return [json.loads(line)["path"] for line in path.read_bytes().splitlines()]


async def test_a_file_is_rotated_under_the_router(tmp_path: Path) -> None:
    path, config = tmp_path / "access.log", tmp_path / "kvroute.yaml"
    config.write_text(f"access_log: {{format: json, file: {path}}}\n")
    async with router("--config", str(config)) as (process, url):
        async with httpx.AsyncClient(base_url=url) as client:
            await client.get("/v1/models/one")
            async with asyncio.timeout(BOUND_S):
                while not paths_in(path):  # noqa: ASYNC110  # another process's
                    await asyncio.sleep(0.02)
            old = moved(path)
            process.send_signal(signal.SIGHUP)
            await client.get("/v1/models/two")
        await ended(process)
    assert paths_in(old) == ["/v1/models/one"]
    assert paths_in(path) == ["/v1/models/two"]


async def test_a_log_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    config = tmp_path / "kvroute.yaml"
    config.write_text(f"access_log: {{format: text, file: {tmp_path}/none/access.log}}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroute", "serve", "--config", str(config), "--port", "0",
        *("--control-port", "0"), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(BOUND_S):
        _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"access_log.file" in stderr
    assert b"Traceback" not in stderr
