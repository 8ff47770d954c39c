"""Policies side by side: the fleet is the same under each, and the table shows them all."""

import io
from dataclasses import replace

from rich.console import Console

from loadgen import Answer, ComparisonSpec, PolicyRun, Usage, comparison_table, summarise, verdict

RUN = PolicyRun(summarise([], 1.0), 2, gpu_blocks=1_234, host_pinned_blocks=5, storage_blocks=6)


def test_only_the_policy_differs() -> None:
    spec = ComparisonSpec(num_workers=3, gpu_tokens=512)
    cost, random = spec.fleet("cost"), spec.fleet("random")
    assert replace(cost, router_flags=()) == replace(random, router_flags=())
    assert cost.router_flags == ("--policy", "cost")
    assert ("--gpu-tokens", "512") in zip(cost.worker_flags, cost.worker_flags[1:], strict=False)


def test_table_and_json() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(comparison_table({"cost": RUN, "random": replace(RUN, gpu_blocks=0)}))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "random" in text
    assert "1,234" in text
    told = RUN.to_json()
    assert (told["gpu_blocks"], told["host_pinned_blocks"], told["storage_blocks"]) == (1_234, 5, 6)
    assert (told["requests"], told["decisions"]) == (0, 2)


def test_the_verdict_holds_the_last_policy_against_the_first() -> None:
    def ran(cached: int, ttft_ms: float) -> PolicyRun:
        usage = Usage(1_000, cached, 1)
        return PolicyRun(summarise([Answer(0, 0.0, status=200, ttft_ms=ttft_ms, usage=usage)], 1.0))

    runs = {"round_robin": ran(629, 85.6), "random": RUN, "cost": ran(814, 40.1)}
    assert verdict(runs) == "round_robin → cost: cached 62.9 % → 81.4 %, TTFT p50 85.6 → 40.1 ms"
    nothing = verdict({"random": RUN, "cost": RUN})
    assert nothing == "random → cost: cached – → –, TTFT p50 – → – ms"
