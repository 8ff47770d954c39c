"""What a benchmark reports: named values of several runs, as a table and as JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table

_FILE_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure.

    Attributes:
        value: median of ``runs``.
        peer: name of what was measured beside it in the same run, and ``ratio`` = value ÷ peer's.
        most: a larger value is a fault; None where there is no such bound.
        more_ratios: ratios to further peers of the same run, by name.
        target: what the value is hoped to be at most; missing it is reported, and no fault.
        reason: why there is no figure; the value is NaN then.
    """

    name: str
    value: float
    unit: str
    runs: tuple[float, ...]
    peer: str | None = None
    ratio: float | None = None
    most: float | None = None
    more_ratios: tuple[tuple[str, float], ...] = ()
    target: float | None = None
    reason: str | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether the value is a fault."""
        return self.most is not None and self.value > self.most

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.value <= self.target

    @property
    def remark(self) -> str:
        """What the table says beside the figure: ratios, bound, target, or why there is no figure."""
        if self.reason is not None:
            return f"not available: {self.reason}"
        ratios = [] if self.ratio is None else [(str(self.peer), self.ratio)]
        parts = [f"{ratio:.2f} × {peer}" for peer, ratio in [*ratios, *self.more_ratios]]
        if self.most is not None:
            parts.append(f"at most {self.most:,.3f}")
        if self.target is not None:
            parts.append(f"target {self.target:,.3f} {'met' if self.is_met else 'missed'}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, object]:
        """The form of ``--json``."""
        fields: dict[str, object] = {
            "name": self.name,
            "value": self.value if self.reason is None else None,
            "unit": self.unit,
            "runs": list(self.runs),
        }
        if self.peer is not None:
            fields |= {"peer": self.peer, "ratio": self.ratio}
        if self.most is not None:
            fields["most"] = self.most
        if self.more_ratios:
            fields["more_ratios"] = dict(self.more_ratios)
        if self.target is not None:
            fields |= {"target": self.target, "met": self.is_met}
        if self.reason is not None:
            fields["not_available"] = self.reason
        return fields


def measured(
    name: str, unit: str, runs: Sequence[float], peer: Measurement | None = None
) -> Measurement:
    """The median of several runs, beside a peer's of the same run."""
    value = median(runs)
    ratio = value / peer.value if peer is not None and peer.value else None
    return Measurement(name, value, unit, tuple(runs), peer.name if peer else None, ratio)


def not_available(name: str, unit: str, reason: str) -> Measurement:
    """A row without a figure."""
    return Measurement(name, nan, unit, (), reason=reason)


def bounded(name: str, unit: str, value: float, most: float) -> Measurement:
    """One figure that may not be larger."""
    return Measurement(name, value, unit, (value,), most=most)


def main(title: str, run: Callable[[bool], list[Measurement]]) -> None:
    """Parse ``--json FILE`` and ``--quick``, run, print the table, write the file; exit with 1 beyond a bound."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is stdout")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    arguments = parser.parse_args()
    rows = run(arguments.quick)
    show(title, rows)
    if arguments.json:
        write_json(arguments.json, rows)
    exit_beyond(rows)


def exit_beyond(rows: Sequence[Measurement]) -> None:
    """End the process with 1 if a value is beyond its bound."""
    beyond = [
        f"{row.name} is {row.value:,.3f}, at most {row.most:,.3f}" for row in rows if row.is_beyond
    ]
    if beyond:
        sys.exit("beyond their bounds: " + "; ".join(beyond))


def show(title: str, rows: Sequence[Measurement]) -> None:
    """Print the table to stderr, so that stdout stays free for JSON; into a file, as wide as it needs to be."""
    table = Table(title=title, title_justify="left")
    for heading in ("name", "median", "unit", "min", "max", "runs", "ratio"):
        justify: Literal["left", "right"] = "left" if heading in ("name", "unit") else "right"
        table.add_column(heading, justify=justify, overflow="fold")
    for row in rows:
        value = f"{row.value:,.3f}" if row.reason is None else "-"
        table.add_row(row.name, value, row.unit, *_spread(row.runs), row.remark)
    width = None if sys.stderr.isatty() else _FILE_WIDTH
    Console(stderr=True, width=width).print(table)


def _spread(runs: Sequence[float]) -> tuple[str, str, str]:
    """Least, most and number of runs."""
    if not runs:
        return "-", "-", "0"
    return f"{min(runs):,.3f}", f"{max(runs):,.3f}", str(len(runs))


def write_json(target: str, rows: Sequence[Measurement]) -> None:
    """Write ``[{"name", "value", "unit", "runs", ...}]`` to a file or to stdout."""
    text = json.dumps([row.to_json() for row in rows], indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
