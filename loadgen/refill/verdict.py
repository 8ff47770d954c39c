"""What the story must show, checked line by line, and the table that tells it."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from loadgen.refill.sizes import RefillSpec
from loadgen.refill.story import RefillRun

UNANNOUNCED = "host_stores_unannounced"

_Check = tuple[str, bool, str]
"""What must hold, whether it does, what was found."""


_DECISIONS = 344
_PREFIXES = 100
_TOKENS_REFILLED = 169_472
_HOST_ONLY_SHARE = 300 / 344
_WITHIN_DECISIONS = 50


@dataclass(frozen=True, slots=True)
class Requirements:
    """What must be reached.

    Attributes:
        truth_host_only: decisions for which the prefix must be on host alone somewhere.
        host_tokens_evicted: after the decisions, a host pool full on each worker.
        within_decisions: the finding must be raised when so many are made.
    """

    decisions: int
    prefixes: int
    tokens_refilled: int
    truth_host_only: int
    host_tokens_evicted: int
    within_decisions: int = _WITHIN_DECISIONS

    @classmethod
    def of(cls, spec: RefillSpec) -> "Requirements":
        """Those of the full-size story, scaled down where the story is smaller."""
        share_of_full = min(1.0, spec.host_tokens / RefillSpec().host_tokens)
        return cls(
            min(_DECISIONS, spec.decisions),
            min(_PREFIXES, spec.num_prefixes, spec.decisions),
            int(_TOKENS_REFILLED * share_of_full),
            int(_HOST_ONLY_SHARE * spec.decisions),
            spec.host_tokens,
        )


def shortfalls(announced: RefillRun, muted: RefillRun, requirements: Requirements) -> list[str]:
    """What is not as it must be, one line each; none where the story holds."""
    checks = _checks_of_both("announced", announced, requirements)
    checks += _checks_of_announced(announced)
    checks += _checks_of_both("muted", muted, requirements)
    checks += _checks_of_muted(muted, requirements)
    return [f"{what}: {got}" for what, holds, got in checks if not holds]


def _checks_of_announced(run: RefillRun) -> list[_Check]:
    kinds = [finding.kind for finding in run.findings] or list(run.first_findings)
    pinned, host_only = run.decisions_with_host_pinned, run.truth_host_only
    unknown, afterwards = run.removes_of_unknown, run.mismatches_afterwards
    return [
        ("announced: mismatches is 0", run.mismatches == 0, str(run.mismatches)),
        ("announced: mismatches_afterwards is 0", afterwards == 0, str(afterwards)),
        ("announced: no finding", not kinds, str(kinds)),
        ("announced: removes_of_unknown is 0", unknown == 0, str(unknown)),
        (f"announced: decisions_with_host_pinned ≥ {host_only}", pinned >= host_only, str(pinned)),
    ]


def _checks_of_muted(run: RefillRun, requirements: Requirements) -> list[_Check]:
    pinned, unknown = run.decisions_with_host_pinned, run.removes_of_unknown
    first = run.first_findings.get(UNANNOUNCED)
    standing = [finding for finding in run.findings if finding.kind == UNANNOUNCED]
    is_proved = all(finding.evidence and finding.ranks for finding in standing)
    bound = requirements.within_decisions
    return [
        ("muted: decisions_with_host_pinned is 0", pinned == 0, str(pinned)),
        ("muted: removes_of_unknown above 0", unknown > 0, str(unknown)),
        (
            f"muted: {UNANNOUNCED} within {bound} decisions and to the end",
            first is not None and first <= bound and bool(standing),
            f"first after {first}, {'there' if standing else 'not there'} at the end",
        ),
        (
            f"muted: {UNANNOUNCED} has evidence and ranks",
            is_proved,
            "; ".join(f"evidence {one.evidence}, ranks {one.ranks}" for one in standing),
        ),
    ]


def _checks_of_both(name: str, run: RefillRun, requirements: Requirements) -> list[_Check]:
    bounds = ("decisions", "prefixes", "tokens_refilled", "truth_host_only", "host_tokens_evicted")
    left = run.host_copies_left
    return [(f"{name}: host_copies_left is 0", left == 0, str(left))] + [
        (f"{name}: {bound} ≥ {least}", value >= least, str(value))
        for bound in bounds
        for least, value in ((getattr(requirements, bound), getattr(run, bound)),)
    ]


def refill_table(runs: Mapping[str, RefillRun], spec: RefillSpec) -> Table:
    """One column a telling, one row a number.

    Times are those of engines that run ``engine_speed`` times as fast; a story below full size has too few of them.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in runs:
        table.add_column(f"refills {name}", justify="right")
    for label, cell in _ROWS:
        table.add_row(label, *(cell(run) for run in runs.values()))
    if _is_full(spec):
        speed = "" if spec.engine_speed == 1 else f", engine ×{spec.engine_speed:g}"
        table.add_row(f"TTFT ms (p50 / p99{speed})", *map(_ttft, runs.values()))
    return table


def _is_full(spec: RefillSpec) -> bool:
    full = RefillSpec()
    return spec.decisions >= full.decisions and spec.host_tokens >= full.host_tokens


def _ttft(run: RefillRun) -> str:
    times = run.ttft_ms
    return "–" if times is None else f"{times.p50:,.1f} / {times.p99:,.1f}"


def _findings(run: RefillRun) -> str:
    seen = [f"{kind}\n(decision {number})" for kind, number in run.first_findings.items()]
    return "\n".join(seen) or ", ".join(finding.kind for finding in run.findings) or "none"


_ROWS = (
    ("requests decided", lambda run: f"{run.decisions:,} over {run.prefixes:,} prefixes"),
    ("tokens refilled from storage", lambda run: f"{run.tokens_refilled:,}"),
    ("… while requests were decided", lambda run: f"{run.refilled_while_deciding:,}"),
    (
        "tokens loaded back / demoted",
        lambda run: f"{run.tokens_loaded_back:,} / {run.tokens_demoted:,}",
    ),
    ("prefix truly on host alone", lambda run: f"{run.truth_host_only:,}"),
    ("decisions that saw host blocks", lambda run: f"{run.decisions_with_host_pinned:,}"),
    ("claims that differ from truth", lambda run: f"{run.mismatches:,}"),
    ("host tokens evicted afterwards", lambda run: f"{run.host_tokens_evicted:,}"),
    ("… claims that differ then", lambda run: f"{run.mismatches_afterwards:,}"),
    ("removals of unannounced blocks", lambda run: f"{run.removes_of_unknown:,}"),
    ("findings", _findings),
)
