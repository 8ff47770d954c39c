"""An examination as tables for people: a block a worker, a line a check, what to change below it."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kvroute.doctor.check import Check, Status, num_of
from kvroute.doctor.report import Examination, Report
from router.plain_text import plain

_STYLES = {
    Status.OK: "green",
    Status.UNCHECKED: "dim",
    Status.WARNING: "yellow",
    Status.FAULT: "bold red",
}


def tables(found: Examination) -> Iterator[RenderableType]:
    """Routers, workers, the fleet, and the sum of it."""
    for report in (*found.routers, *found.workers):
        yield _heading(report)
        yield _checks(report.checks)
        yield Text("")
    if found.fleet:
        yield Text("the fleet", "bold")
        yield _checks(list(found.fleet))
        yield Text("")
    yield _sum(found)


def _heading(report: Report) -> Text:
    spec = report.spec
    parts = [report.url]
    if spec is not None:
        ranks = "1 rank" if spec.num_ranks == 1 else f"{spec.num_ranks} ranks"
        parts += [f"{spec.engine} {spec.version or ''}".strip(), spec.model, ranks]
    told = Text(plain(report.name), "bold")
    return told.append(f"  {' · '.join(map(plain, parts))}", "not bold")


def _checks(checks: list[Check]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=9)
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for one in checks:
        table.add_row(Text(one.status, _STYLES[one.status]), Text(one.name), Text(one.text))
        if one.change:
            table.add_row("", "", Text(f"→ {one.change}", "bold"))
    return table


def _sum(found: Examination) -> Text:
    faults, warnings = found.num_faults, num_of(found.checks, Status.WARNING)
    workers = _counted(len(found.workers), "worker")
    text = f"{workers}: {_counted(faults, 'fault')}, {_counted(warnings, 'warning')}"
    return Text(
        text, _STYLES[Status.FAULT if faults else Status.WARNING if warnings else Status.OK]
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
