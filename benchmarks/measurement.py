"""What a benchmark reports: named values of several runs, as a table and as JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table

_FILE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure.

    Attributes:
        value: median of ``runs``.
        peer: name of what was measured beside it in the same run, and ``ratio`` = value ÷ peer's.
        most: a larger value is a fault; None where there is no such bound.
    """

    name: str
    value: float
    unit: str
    runs: tuple[float, ...]
    peer: str | None = None
    ratio: float | None = None
    most: float | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether the value is a fault."""
        return self.most is not None and self.value > self.most

    def to_json(self) -> dict[str, object]:
        """The form of ``--json``."""
        fields: dict[str, object] = {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "runs": list(self.runs),
        }
        if self.peer is not None:
            fields |= {"peer": self.peer, "ratio": self.ratio}
        if self.most is not None:
            fields["most"] = self.most
        return fields


def measured(
    name: str, unit: str, runs: Sequence[float], peer: Measurement | None = None
) -> Measurement:
    """The median of several runs, beside a peer's of the same run."""
    value = median(runs)
    ratio = value / peer.value if peer is not None and peer.value else None
    return Measurement(name, value, unit, tuple(runs), peer.name if peer else None, ratio)


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
        ratio = f"{row.ratio:.2f} × {row.peer}" if row.ratio is not None else ""
        ratio = ratio if row.most is None else f"at most {row.most:,.3f}"
        spread = (f"{min(row.runs):,.3f}", f"{max(row.runs):,.3f}", str(len(row.runs)))
        table.add_row(row.name, f"{row.value:,.3f}", row.unit, *spread, ratio)
    width = None if sys.stderr.isatty() else _FILE_WIDTH
    Console(stderr=True, width=width).print(table)


def write_json(target: str, rows: Sequence[Measurement]) -> None:
    """Write ``[{"name", "value", "unit", "runs", ...}]`` to a file or to stdout."""
    text = json.dumps([row.to_json() for row in rows], indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
