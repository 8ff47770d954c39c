"""Two workers and a real Mooncake store: what one of them writes the other refills, and a dead master ends nothing."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import create_connection, create_server

import httpx
import pytest

from tests import needs

PROMPT = list(range(1_000, 1_400))
PAGES = len(PROMPT) // 16
WORKER = """
import asyncio, sys
from worker.config import WorkerConfig
from worker.service import serve_worker
config = WorkerConfig(
    port=0, page_size=16, gpu_tokens=2_048, host_tokens=2_048, speed=50.0, storage=sys.argv[1],
    prefetch_policy="wait_complete",
)
asyncio.run(serve_worker(config, on_ready=lambda port: print(port, flush=True)))
"""


@contextmanager
def process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process, killed in the end: leaving in order takes Mooncake long without a master."""
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in held]


@pytest.fixture
def master() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A master with its HTTP metadata server, and its address."""
    module = needs.module("mooncake.store", extra="mooncake", may_be_missing=True)
    rpc, metadata, metrics = free_ports(3)
    command = [
        str(Path(str(module.__file__)).with_name("mooncake_master")),
        "--rpc_address=127.0.0.1",
        f"--rpc_port={rpc}",
        "--enable_http_metadata_server=true",
        "--http_metadata_server_host=127.0.0.1",
        f"--http_metadata_server_port={metadata}",
        "--metrics_host=127.0.0.1",
        f"--metrics_port={metrics}",
    ]
    url = f"http://127.0.0.1:{metadata}/metadata"
    with process(command) as running:
        for port in (rpc, metadata):
            wait_for(port, running)
        yield running, f"mooncake://127.0.0.1:{rpc}?metadata={url}&segment_mb=16"


def wait_for(port: int, server: subprocess.Popen[str]) -> None:
    """Until it listens."""
    while server.poll() is None:
        with suppress(OSError), create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.01)
    pytest.fail(f"mooncake_master ended with {server.returncode}")


def client_of(worker: subprocess.Popen[str]) -> httpx.Client:
    assert worker.stdout is not None
    port = int(worker.stdout.readline())
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20)


def cached(worker: httpx.Client, prompt: list[int]) -> dict[str, int]:
    fields = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 4}}
    answer = worker.post("/generate", json=fields).raise_for_status().json()
    details: dict[str, int] = answer["meta_info"]["cached_tokens_details"]
    return details


def counted(worker: httpx.Client) -> dict[str, int]:
    counters: dict[str, int] = worker.get("/debug/residency").json()["storage"]
    return counters


def test_one_worker_refills_what_another_wrote(master: tuple[subprocess.Popen[str], str]) -> None:
    running, address = master
    with ExitStack() as stack:
        command = [sys.executable, "-c", WORKER, address]
        started = [stack.enter_context(process(command)) for _ in range(2)]
        ours, theirs = [stack.enter_context(client_of(one)) for one in started]
        assert cached(ours, PROMPT)["storage"] == 0
        while counted(ours)["put"] < PAGES:
            assert counted(ours)["failed"] == 0
            time.sleep(0.01)
        assert cached(theirs, PROMPT)["storage"] == (PAGES - 1) * 16  # one token is computed
        assert counted(theirs)["hit"] == PAGES
        running.kill()
        running.wait()
        assert cached(theirs, PROMPT[::-1])["storage"] == 0
        assert counted(theirs)["unanswered"] > 0
