"""A soak of the router: mixed traffic, faults and restarts for a while, and what is left of it when it is over.

What: requests that are still booked, connections to workers that are still busy, what was counted beside what was sent,
and how much resident memory has grown over the second half, when every table that may grow to a bound has had time
to. Why: what leaks leaks a little a request; a router runs for weeks. Policies with and without knowledge of prefixes.

    python -m benchmarks.soak [--requests N] [--policy NAME]… [--seed N] [--json FILE]

Exit code 1 where something is left, or memory has grown beyond its bound.
"""

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from urllib.request import urlopen

import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.child_process import free_ports, interrupted_by_sigterm, process, wait_for
from benchmarks.measurement import Measurement, bounded, exit_beyond, measured, show, write_json
from benchmarks.soak_traffic import Tally, Traffic
from prompt import bundled_model_dir

NUM_ENGINES = 4
NUM_CLIENTS = 32
NUM_SAMPLES = 40
MOST_GROWTH_PERCENT = 4.0
SETTLE_S = 15.0
POLICIES = ("round_robin", "cost")


@dataclass(frozen=True, slots=True)
class Left:
    """What a soak has left behind.

    Attributes:
        rss_mib: of the router, from the first request to the last.
        metrics: every sample once all was over: name and labels → value.
    """

    tally: Tally
    rss_mib: Sequence[float]
    metrics: Mapping[str, float]
    seconds: float

    def total(self, name: str) -> float:
        """Sum over the labels of a metric."""
        return sum(value for key, value in self.metrics.items() if key.partition("{")[0] == name)

    @property
    def growth_percent(self) -> float:
        """Of resident memory, from the middle fifth to the last."""
        fifth = max(len(self.rss_mib) // 5, 1)
        middle = median(self.rss_mib[2 * fifth : 3 * fifth] or self.rss_mib)
        return 100 * (median(self.rss_mib[-fifth:]) / middle - 1)


def soak(policy: str, num_requests: int, seed: int, restart_every_s: float = 2.0) -> Left:
    """Run one; every child has ended afterwards."""
    data_port, control_port, *ports = free_ports(2 + NUM_ENGINES)
    with _children(policy, data_port, control_port, ports, restart_every_s) as router:
        traffic = Traffic(data_port, Random(seed), num_requests)
        begin = time.monotonic()
        rss_mib = asyncio.run(_watched(traffic, router))
        seconds = time.monotonic() - begin
        return Left(traffic.tally, rss_mib, _settled(control_port), seconds)


@contextlib.contextmanager
def _children(
    policy: str, data_port: int, control_port: int, ports: list[int], restart_every_s: float
) -> Iterator[int]:
    """Engines, and the router before them; yields the router's process id once it is ready."""
    cores = sorted(os.sched_getaffinity(0))
    model = str(bundled_model_dir())
    config = {
        "host": "127.0.0.1",
        "port": data_port,
        "control_port": control_port,
        "policy": policy,
        "workers": [f"http://127.0.0.1:{port}" for port in ports],
        "timeouts": {"first_byte_s": 2.0},
        "breaker": {"cool_down_s": 0.2, "max_cool_down_s": 1.0},
        "health": {"interval_s": 0.25, "timeout_s": 1.0},
        "drain": {"window_s": 0.0},
        "log_level": "error",
    }
    engines = ["-m", "benchmarks.soak_engine", "--tokenizer", model]
    engines += [f"--restart-every-s={restart_every_s}", *(f"--port={port}" for port in ports)]
    with tempfile.TemporaryDirectory() as directory, process(engines, cores[-1]):
        file = Path(directory) / "router.yaml"
        file.write_text(json.dumps(config))  # which is YAML, too
        for port in ports:
            wait_for(f"http://127.0.0.1:{port}/health")
        with process(["-m", "kvroute", "serve", "--config", str(file)], cores[0]) as router:
            wait_for(f"http://127.0.0.1:{data_port}/ready")
            yield router


async def _watched(traffic: Traffic, router: int) -> list[float]:
    """Send all of it, and look at the router's memory meanwhile."""
    seen: list[float] = []
    step = max(traffic.limit // NUM_SAMPLES, 1)
    resident = psutil.Process(router)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(traffic.run(NUM_CLIENTS))
        while not running.done():
            if traffic.tally.num_requests >= step * len(seen):
                seen.append(resident.memory_info().rss / 2**20)
            await asyncio.sleep(0.02)
    return seen


def _settled(control_port: int) -> dict[str, float]:
    """The metrics once nothing is under way any more, or at the end of patience."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = _metrics(control_port)
        under_way = found["requests_in_flight"] or found["worker_connections{state=busy}"]
        if not under_way or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _metrics(control_port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{control_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        _key(sample.name.removeprefix("kvroute_"), sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _key(name: str, labels: Mapping[str, str]) -> str:
    shown = ",".join(f"{label}={value}" for label, value in sorted(labels.items()))
    return f"{name}{{{shown}}}" if shown else name


def rows_of(policy: str, left: Left) -> list[Measurement]:
    """What is bounded first."""
    tally = left.tally
    nothing = {
        "leases": left.metrics["leases_open"],
        "requests_in_flight": left.metrics["requests_in_flight"],
        "booked_requests": left.total("rank_in_flight"),
        "busy_connections": left.metrics["worker_connections{state=busy}"],
        "client_connections": left.metrics["connections_open{port=data}"],
        "miscounted": abs(left.total("requests_total") - tally.num_requests),
        "unfinished_attempts": abs(left.total("plans_total") - left.total("attempts_total")),
        "internal_errors": left.total("internal_errors_total"),
        "index_failures": left.total("index_failures_total"),
        "tick_failures": left.total("tick_failures_total"),
    }
    rows = [bounded(f"{policy}_{name}_left", "", value, 0.0) for name, value in nothing.items()]
    growth = left.growth_percent
    rows.append(bounded(f"{policy}_memory_growth", "%", growth, MOST_GROWTH_PERCENT))
    figures: dict[str, tuple[str, float]] = {
        "memory": ("MiB", left.rss_mib[-1]),
        "requests": ("", tally.num_requests),
        "abandoned": ("", tally.num_left),
        "garbage": ("", tally.num_garbage),
        "repeated": ("", left.total("retries_total")),
        "rate": ("requests/s", tally.num_requests / left.seconds),
    }
    rows += [measured(f"{policy}_{name}", unit, [value]) for name, (unit, value) in figures.items()]
    return rows


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000, metavar="N", help="a policy")
    parser.add_argument("--policy", action="append", help="repeat for each; by default two")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is stdout")
    options = parser.parse_args()
    rows: list[Measurement] = []
    with interrupted_by_sigterm():
        for policy in options.policy or POLICIES:
            rows += rows_of(policy, soak(policy, options.requests, options.seed))
    show("soak", rows)
    if options.json:
        write_json(options.json, rows)
    exit_beyond(rows)


if __name__ == "__main__":
    _main()
