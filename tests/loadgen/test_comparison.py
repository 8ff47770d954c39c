"""Policies side by side: the fleet is the same under each, and the table shows them all."""

import io
from dataclasses import replace

from rich.console import Console

from loadgen import ComparisonSpec, PolicyRun, comparison_table, summarise

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
