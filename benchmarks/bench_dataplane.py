"""The data plane: CPU that the router's process spends per request, per streamed chunk and per answer.

What: all threads of the router, user and system time, divided by what it carried; medians of several
rounds. Behind it stand eight engines that answer at once and announce the blocks (of 16 tokens) of the chat
that all requests begin with; they share one core with the load client, the router has the other. Why CPU and not latency: it says how many requests a core carries, and a noisy machine moves it
least. Baseline in the same rounds: an ASGI endpoint on uvicorn and aiohttp that passes everything on and
decides nothing. All proxies run all the time and take turns, so that a machine whose speed changes changes
all of them.

Rows: ``_2k_ms`` a request of 2 KB on the full path (parse, render, tokenize, keys, match, score, forward),
``_hf_2k_ms`` the same with HF tokenizers, ``_notok_2k_ms`` a body that is routed on load,
``_chunk_us`` one relayed event, ``_stream300_ms`` one answer of 300 events.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from benchmarks.load_client import request_bytes, send_all
from benchmarks.measurement import Measurement, main, measured
from prompt import BUNDLED_MODEL_NAME, Api, PromptModel, bundled_model_dir, view_request

MODEL = BUNDLED_MODEL_NAME
ROOT = Path(__file__).parents[1]
STREAM_CHUNKS = 300
NUM_CONNECTIONS = 16
NUM_ENGINES = 8


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy: its process and its data port."""

    name: str
    pid: int
    port: int

    def cpu_s(self) -> float:
        """CPU time of the process so far, all threads that live."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def process(
    arguments: list[str], core: int, environment: dict[str, str] | None = None
) -> Iterator[int]:
    """A child pinned to one core; ended at the end."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.sched_setaffinity(child.pid, {core})
    try:
        yield child.pid
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


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
    raise TimeoutError(url)


@contextlib.contextmanager
def engines(core: int) -> Iterator[list[str]]:
    """URLs of eight stub engines, each of which announces the prompt that all chats begin with."""
    ports = free_ports(NUM_ENGINES)
    model = PromptModel.load(bundled_model_dir())
    tokens = model.prompt_tokens(view_request(Api.CHAT, chat_body(0))).tokens
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tokens.json"
        file.write_text(json.dumps(memoryview(tokens).cast("I").tolist()))
        arguments = ["-m", "benchmarks.stub_engine", "--model", MODEL, "--tokens", str(file)]
        for port in ports:
            arguments += ["--port", str(port)]
        with process([*arguments, "--tokenizer", str(bundled_model_dir())], core):
            urls = [f"http://127.0.0.1:{port}" for port in ports]
            wait_for(urls[-1] + "/health")
            yield urls


def wait_for_claims(control_port: int, deadline_s: float = 30) -> None:
    """Until the router has heard what every engine announces.

    Raises:
        TimeoutError: it has not by the deadline.
    """
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with urlopen(f"http://127.0.0.1:{control_port}/debug/workers") as answer:
            workers = json.load(answer)
        ranks = [rank for worker in workers for rank in worker["ranks"]]
        if len(ranks) == NUM_ENGINES and all(rank["gpu_blocks"] for rank in ranks):
            return
        time.sleep(0.1)
    raise TimeoutError("the router hears no events")


@contextlib.contextmanager
def kvroute(backends: list[str], core: int, name: str, tokenizer: str) -> Iterator[Proxy]:
    """The router in front of the engines, with one tokenizer library."""
    port, control_port = free_ports(2)
    config = {
        "workers": backends,
        "port": port,
        "control_port": control_port,
        "tokenizer_backend": tokenizer,
        "drain": {"window_s": 0, "finish_s": 1},
        "log_level": "warning",
    }
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "kvroute.yaml"
        file.write_text(yaml.safe_dump(config))
        with process(["-m", "kvroute", "serve", "--config", str(file)], core) as pid:
            wait_for(f"http://127.0.0.1:{port}/ready")
            wait_for_claims(control_port)
            yield Proxy(name, pid, port)


@contextlib.contextmanager
def bare(backend: str, core: int) -> Iterator[Proxy]:
    """The baseline in front of the engine."""
    (port,) = free_ports(1)
    arguments = ["-m", "uvicorn", "--factory", "benchmarks.bare_proxy:create", "--port", str(port)]
    flags = ["--no-access-log", "--log-level", "warning", "--loop", "uvloop"]
    with process([*arguments, *flags], core, {"BACKEND": backend}) as pid:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield Proxy("bare", pid, port)


def chat_body(number: int, size_bytes: int = 2048) -> bytes:
    """A chat of about ``size_bytes`` whose beginning all of them share."""
    words = ("The router weighs what each worker holds against what it is busy with. " * 40).split()
    question = f" Which worker answers soonest, and why? {number:06}"
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": ""},
        ],
        "max_tokens": 16,
    }
    room = size_bytes - len(json.dumps(body)) - len(question)
    messages = body["messages"]
    assert isinstance(messages, list)
    messages[1]["content"] = " ".join(words)[:room] + question
    return json.dumps(body).encode()


def per_request_ms(proxy: Proxy, requests: list[bytes]) -> float:
    """CPU milliseconds a request."""
    before = proxy.cpu_s()
    asyncio.run(send_all(proxy.port, requests, NUM_CONNECTIONS))
    return (proxy.cpu_s() - before) / len(requests) * 1e3


def chats(count: int) -> list[bytes]:
    """Requests of 2 KB."""
    return [request_bytes("/v1/chat/completions", chat_body(number)) for number in range(count)]


def streams(count: int, num_chunks: int) -> list[bytes]:
    """Streamed answers of so many events."""
    headers = {"x-chunks": str(num_chunks)}
    body = chat_body(0).replace(b'"max_tokens"', b'"stream": true, "max_tokens"')
    return [request_bytes("/v1/chat/completions", body, headers)] * count


def plain(count: int) -> list[bytes]:
    """Bodies of 2 KB on a path that is routed on load."""
    return [request_bytes("/v1/embeddings", chat_body(number)) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent in one batch."""

    name: str
    requests: list[bytes]


def take_turns(
    proxies: list[Proxy], loads: list[Load], num_rounds: int
) -> dict[tuple[str, str], list[float]]:
    """CPU milliseconds a request by proxy and load, one a round."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(num_rounds):
        for load in loads:
            for proxy in proxies:
                value = per_request_ms(proxy, load.requests)
                found.setdefault((proxy.name, load.name), []).append(value)
    return found


def chunk_us(answers_of_one: list[float], answers_of_many: list[float]) -> list[float]:
    """What the events beyond the first cost, each."""
    pairs = zip(answers_of_one, answers_of_many, strict=True)
    return [(many - one) / (STREAM_CHUNKS - 1) * 1e3 for one, many in pairs]


def rows_of(
    name: str, found: dict[tuple[str, str], list[float]], peers: dict[str, Measurement]
) -> dict[str, Measurement]:
    """Rows of one proxy by kind, beside those of the baseline."""
    one, many = found[name, "one"], found[name, "many"]
    kinds = {
        "2k_ms": ("ms CPU/request", found[name, "chat"], "2k_ms"),
        "notok_2k_ms": ("ms CPU/request", found[name, "plain"], "2k_ms"),
        "chunk_us": ("µs CPU/chunk", chunk_us(one, many), "chunk_us"),
        "stream300_ms": ("ms CPU/answer", many, "stream300_ms"),
    }
    return {
        kind: measured(f"{name}_{kind}", unit, values, peers.get(peer))
        for kind, (unit, values, peer) in kinds.items()
    }


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_rounds, scale = (5, 1) if quick else (9, 3)
    near, far = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {far})
    loads = [
        Load("chat", chats(1_000 * scale)),
        Load("plain", plain(1_000 * scale)),
        Load("one", streams(400 * scale, 1)),
        Load("many", streams(100 * scale, STREAM_CHUNKS)),
    ]
    with (
        engines(far) as backends,
        bare(backends[0], near) as base,
        kvroute(backends, near, "kvroute", "auto") as router,
        kvroute(backends, near, "kvroute_hf", "hf") as slow,
    ):
        for proxy in (base, router, slow):
            per_request_ms(proxy, chats(200))
        found = take_turns([base, router], loads, num_rounds)
        found |= take_turns([slow], loads[:1], num_rounds)
    peers = rows_of(base.name, found, {})
    del peers["notok_2k_ms"]
    slow_ms = found[slow.name, "chat"]
    return [
        *peers.values(),
        *rows_of(router.name, found, peers).values(),
        measured("kvroute_hf_2k_ms", "ms CPU/request", slow_ms, peers["2k_ms"]),
    ]


if __name__ == "__main__":
    main("Data plane", run)
