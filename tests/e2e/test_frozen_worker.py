"""A worker whose process is stopped: its connections stay open and say nothing, until it goes on."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from loadgen.fleet import free_ports
from loadgen.process import Child
from tests.router.whole_router import CHAT, WholeRouter, whole_router

pytestmark = pytest.mark.e2e

QUICK = {"interval_s": 0.1, "timeout_s": 0.3, "failure_threshold": 2}
CHAT_BODY = {"model": "kvroute-sim", "max_tokens": 4}


async def ask(router: WholeRouter, number: int) -> tuple[int, str]:
    """Status, and who served it."""
    messages = [{"role": "user", "content": f"question {number}"}]
    answer = await router.data.post(CHAT, json=CHAT_BODY | {"messages": messages})
    return answer.status_code, answer.headers.get("x-kvroute-worker", "")


async def test_requests_go_elsewhere_while_it_is_stopped_and_come_back(tmp_path: Path) -> None:
    ports = free_ports(2)
    flags = ["--speed", "20"]
    children = [
        Child(f"w{port}", ["worker", "--port", str(port), *flags], tmp_path / f"{port}.log")
        for port in ports
    ]
    async with children[0], children[1]:
        settings = {
            "workers": [f"http://127.0.0.1:{port}" for port in ports],
            "ready": {"min_workers": 2},
            "health": QUICK,
            "policy": "round_robin",
            "retries": {"floor": 1_000},
        }
        async with whole_router(**settings) as router:
            async with asyncio.timeout(60):
                while (await router.data.get("/ready")).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            frozen = f"127.0.0.1:{ports[0]}"
            before = [await ask(router, number) for number in range(4)]
            assert {worker for _, worker in before} == {f"127.0.0.1:{port}" for port in ports}
            pid = children[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                stopped = await asyncio.gather(*(ask(router, number) for number in range(20)))
                later = [await ask(router, number) for number in range(4)]
            finally:
                os.kill(pid, signal.SIGCONT)
            assert {status for status, _ in [*stopped, *later]} == {200}
            assert frozen not in {worker for _, worker in [*stopped, *later]}
            await router.until(lambda found: found["workers{state=serving}"] == 2)
            after = [await ask(router, number) for number in range(4)]
            assert {worker for status, worker in after if status == 200} >= {frozen}
            await router.settled()
