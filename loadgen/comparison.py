"""Routing policies side by side: the same workload, a fresh fleet and cold caches for each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table

from loadgen.answer import Answer
from loadgen.control_port import ControlPort
from loadgen.fleet import Fleet, FleetSpec, start_fleet
from loadgen.replay import ReplayOptions, replay
from loadgen.report import LoadReport, Percentiles, load_table, summarise
from loadgen.scratch import scratch_directory
from loadgen.timed_request import TimedRequest


@dataclass(frozen=True, slots=True)
class ComparisonSpec:
    """A fleet that is the same under every policy.

    Attributes:
        gpu_tokens: of each worker; ``host_tokens`` likewise. Small pools make the tiers matter.
        engine_speed: engine seconds in a second of wall time.
    """

    num_workers: int = 4
    page_size: int = 16
    gpu_tokens: int = 4_096
    host_tokens: int = 16_384
    engine_speed: float = 1.0

    def fleet(self, policy: str) -> FleetSpec:
        """The fleet under one policy."""
        sizes = {
            "--page-size": self.page_size,
            "--gpu-tokens": self.gpu_tokens,
            "--host-tokens": self.host_tokens,
            "--speed": self.engine_speed,
        }
        flags = tuple(str(part) for pair in sizes.items() for part in pair)
        return FleetSpec(self.num_workers, flags, ("--policy", policy))


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy's run: what the clients measured, and what the router knew when it decided.

    The blocks are those of the chosen ranks, summed over the decisions, each on its fastest tier.
    """

    load: LoadReport
    decisions: int = 0
    gpu_blocks: int = 0
    host_pinned_blocks: int = 0
    storage_blocks: int = 0

    def to_json(self) -> dict[str, object]:
        """The load report's fields and the blocks."""
        blocks = {name: getattr(self, name) for name in _COUNTED}
        return self.load.to_json() | {"decisions": self.decisions} | blocks


_COUNTED = ("gpu_blocks", "host_pinned_blocks", "storage_blocks")


async def compare(
    policies: Sequence[str],
    spec: ComparisonSpec,
    requests: Sequence[TimedRequest],
    *,
    on_start: Callable[[str], None] = lambda _policy: None,
    on_answer: Callable[[str, Answer], None] = lambda _policy, _answer: None,
) -> dict[str, PolicyRun]:
    """Run the workload under each policy in turn.

    Args:
        on_start: called with the policy when its fleet is up and its requests begin.
        on_answer: called with the policy as each request ends, for progress.

    Raises:
        ChildError: a process did not start; its log is in the message.
        ControlPortError: the router does not tell its decisions.
    """
    runs: dict[str, PolicyRun] = {}
    for policy in policies:
        with scratch_directory() as logs:
            async with start_fleet(spec.fleet(policy), logs) as fleet:
                on_start(policy)
                runs[policy] = await _run(fleet, requests, partial(on_answer, policy))
    return runs


async def _run(
    fleet: Fleet,
    requests: Sequence[TimedRequest],
    on_answer: Callable[[Answer], None],
) -> PolicyRun:
    start = time.perf_counter()
    answers = await replay(requests, ReplayOptions(fleet.router_url), on_answer=on_answer)
    load = summarise(answers, time.perf_counter() - start)
    decisions = await ControlPort(fleet.control_url, fleet.session).decisions(len(requests))
    chosen = [decision.chosen_candidate for decision in decisions]
    sums = {name: sum(getattr(one, name) for one in chosen if one is not None) for name in _COUNTED}
    return PolicyRun(load, len(decisions), **sums)


def comparison_table(runs: dict[str, PolicyRun]) -> Table:
    """One column a policy."""
    table = load_table({policy: run.load for policy, run in runs.items()})
    labels = (
        "blocks found on GPU (L1)",
        "blocks found on host (L2)",
        "blocks found in storage (L3)",
    )
    for label, name in zip(labels, _COUNTED, strict=True):
        table.add_row(label, *(f"{getattr(run, name):,}" for run in runs.values()))
    return table


def verdict(runs: dict[str, PolicyRun]) -> str:
    """The last policy against the first, in a sentence."""
    (before, first), *_, (after, last) = runs.items()
    cached = " → ".join(_share(run.load.cached_token_share) for run in (first, last))
    ttft = " → ".join(_p50(run.load.ttft_ms) for run in (first, last))
    return f"{before} → {after}: cached {cached}, TTFT p50 {ttft} ms"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"


def _p50(times: Percentiles | None) -> str:
    return "–" if times is None else f"{times.p50:,.1f}"
