"""A run of a workload as numbers: percentiles, reuse, errors; as JSON and as a table.

Reuse is always what the engines report: cached tokens ÷ prompt tokens, over the answers that report both.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.markup import escape
from rich.table import Table

from loadgen.answer import Answer

_MAX_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one measured quantity, in its own unit. ``count`` is the number of values."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One run.

    Attributes:
        requests: all that were to be sent.
        errors: those that did not end well; ``errors_by_kind`` tells which way.
        first_errors: the words on the first error of each kind.
        duration_s: from the first start to the last end.
        cached_token_share: cached ÷ prompt tokens; None where nothing reported them.
        ttft_ms: of the good ones; likewise the other times. None where there were none.
        late_ms: how late the generator itself was.
        requests_by_worker: as the answers name them.
    """

    requests: int
    errors: int
    errors_by_kind: Mapping[str, int]
    first_errors: Mapping[str, str]
    duration_s: float
    prompt_tokens: int
    cached_tokens: int
    cached_token_share: float | None
    output_tokens: int
    ttft_ms: Percentiles | None
    inter_token_ms: Percentiles | None
    total_ms: Percentiles | None
    late_ms: Percentiles | None
    requests_by_worker: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        """Plain values, with the field names above."""
        return asdict(self)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie, linearly between neighbours.

    Args:
        ordered: ascending, not empty.
        share: 0.0 to 1.0.
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """Summary of the values in any order; None of none. O(n log n)."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (round(percentile(ordered, share), 3) for share in (0.5, 0.9, 0.99))
    mean = round(sum(ordered) / len(ordered), 3)
    return Percentiles(len(ordered), mean, p50, p90, p99, round(ordered[-1], 3))


def summarise(answers: Sequence[Answer], duration_s: float) -> LoadReport:
    """Make the report of one run. O(answers · log answers)."""
    good = [answer for answer in answers if answer.error is None]
    bad = [answer for answer in answers if answer.error is not None]
    first_errors: dict[str, str] = {}
    for answer in bad:
        first_errors.setdefault(str(answer.error), answer.detail)
    prompt_tokens, cached_tokens, share = _reuse(good)
    return LoadReport(
        requests=len(answers),
        errors=len(bad),
        errors_by_kind=dict(Counter(str(answer.error) for answer in bad)),
        first_errors=first_errors,
        duration_s=round(duration_s, 3),
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        cached_token_share=share,
        output_tokens=sum(answer.usage.output_tokens or 0 for answer in good),
        ttft_ms=percentiles([a.ttft_ms for a in good if a.ttft_ms is not None]),
        inter_token_ms=percentiles([gap for answer in good for gap in answer.inter_token_ms]),
        total_ms=percentiles([a.total_ms for a in good if a.total_ms is not None]),
        late_ms=percentiles([answer.late_ms for answer in answers]),
        requests_by_worker=dict(sorted(Counter(a.worker for a in good if a.worker).items())),
    )


def load_table(reports: Mapping[str, LoadReport]) -> Table:
    """One column a run, one row a number."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in reports:
        table.add_column(name, justify="right")
    for label, cell in _ROWS:
        table.add_row(label, *(cell(report) for report in reports.values()))
    return table


def run_table(name: str, report: LoadReport) -> Table:
    """One run alone, with the requests of each worker below; of more than 16 workers the busiest."""
    table = load_table({name: report})
    busiest = sorted(report.requests_by_worker, key=lambda one: -report.requests_by_worker[one])
    shown = set(busiest[:_MAX_WORKERS])
    for worker, count in report.requests_by_worker.items():
        if worker in shown:
            table.add_row(f"requests by {escape(worker)}", f"{count:,}")
    rest = [report.requests_by_worker[worker] for worker in busiest[_MAX_WORKERS:]]
    if rest:
        table.add_row(f"requests by {len(rest)} further workers", f"{sum(rest):,}")
    return table


def error_lines(report: LoadReport) -> list[str]:
    """The words on the first error of each kind, a line each."""
    return [
        f"{kind}: {words or 'no details'} ({report.errors_by_kind.get(kind, 0):,}×)"
        for kind, words in report.first_errors.items()
    ]


def _reuse(good: Sequence[Answer]) -> tuple[int, int, float | None]:
    prompt_tokens = cached_tokens = 0
    for answer in good:
        usage = answer.usage
        if usage.prompt_tokens is not None and usage.cached_tokens is not None:
            prompt_tokens += usage.prompt_tokens
            cached_tokens += usage.cached_tokens
    share = round(cached_tokens / prompt_tokens, 4) if prompt_tokens else None
    return prompt_tokens, cached_tokens, share


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _times(times: Percentiles | None) -> str:
    if times is None:
        return "–"
    return f"{times.p50:,.1f} / {times.p90:,.1f} / {times.p99:,.1f}"


def _errors(report: LoadReport) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in report.errors_by_kind.items())
    return f"{report.errors} ({kinds})" if kinds else str(report.errors)


_ROWS = (
    ("requests", lambda report: f"{report.requests:,}"),
    ("errors", _errors),
    ("prompt tokens", lambda report: f"{report.prompt_tokens:,}"),
    ("cached tokens (share)", lambda report: _share(report.cached_token_share)),
    ("output tokens", lambda report: f"{report.output_tokens:,}"),
    ("TTFT ms (p50 / p90 / p99)", lambda report: _times(report.ttft_ms)),
    ("inter-token ms (p50 / p90 / p99)", lambda report: _times(report.inter_token_ms)),
    ("whole answer ms (p50 / p90 / p99)", lambda report: _times(report.total_ms)),
    ("sent late by ms (p50 / p90 / p99)", lambda report: _times(report.late_ms)),
    ("duration s", lambda report: f"{report.duration_s:,.1f}"),
)
