"""Children of this process: they start, say why they do not, and are gone afterwards."""

import asyncio
import contextlib
import os
from pathlib import Path

import aiohttp
import pytest

from loadgen import Child, ChildError, free_ports

pytestmark = pytest.mark.e2e


def is_running(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_that_ends_early_says_why(tmp_path: Path) -> None:
    worker = Child("worker", ["worker", "--page-size", "0"], tmp_path / "log")
    async with worker, aiohttp.ClientSession() as session:
        with pytest.raises(ChildError, match="ended with code 2") as raised:
            await worker.wait_ready(session, "http://127.0.0.1:1/health", 30.0)
    assert "--page-size" in str(raised.value)


async def test_a_child_minds_no_modules_of_the_current_directory(tmp_path: Path) -> None:
    for name in ("worker.py", "loadgen.py", "kvroute.py", "asyncio.py"):
        (tmp_path / name).write_text("raise SystemExit('not this one')")
    worker = Child("worker", ["worker", "--page-size", "0"], tmp_path / "log")
    with contextlib.chdir(tmp_path):
        async with worker, aiohttp.ClientSession() as session:
            with pytest.raises(ChildError, match="ended with code 2") as raised:
                await worker.wait_ready(session, "http://127.0.0.1:1/health", 30.0)
    assert "--page-size" in str(raised.value)


async def test_a_child_is_ended_however_the_context_is_left(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    worker = Child("worker", ["worker", "--port", str(port)], tmp_path / "log")

    async def use_and_fail() -> None:
        async with worker, aiohttp.ClientSession() as session:
            await worker.wait_ready(session, f"http://127.0.0.1:{port}/health", 30.0)
            assert is_running(worker.pid)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        await use_and_fail()
    assert not is_running(worker.pid)


async def test_a_child_that_is_not_ready_in_time_is_named(tmp_path: Path) -> None:
    (port, other) = free_ports(2)
    worker = Child("the worker", ["worker", "--port", str(port)], tmp_path / "log")
    async with worker, aiohttp.ClientSession() as session:
        with pytest.raises(ChildError, match="the worker was not ready"):
            await worker.wait_ready(session, f"http://127.0.0.1:{other}/health", 0.2)
    assert not is_running(worker.pid)


async def test_a_cancelled_context_ends_its_child(tmp_path: Path) -> None:
    worker = Child("worker", ["worker", "--port", "0"], tmp_path / "log")
    started = asyncio.Event()

    async def hold() -> None:
        async with worker:
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(worker.pid)


def test_free_ports_are_all_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
