"""Where commands write: results as JSON to a file or stdout, everything for people to the terminal.

With ``--json -`` stdout holds the JSON and nothing else; tables then go to stderr, where progress always goes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

JsonFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON to FILE; - = stdout."),
]

_FILE_WIDTH = 140


def console_beside(json_file: str | None) -> Console:
    """The console for tables: stdout, or stderr where stdout is taken by the JSON.

    What is no terminal has no width of its own and gets room for the widest table.
    """
    console = Console(stderr=json_file == "-")
    return console if console.is_terminal else Console(stderr=json_file == "-", width=_FILE_WIDTH)


def write_json(json_file: str | None, result: Mapping[str, object]) -> None:
    """Write the result where it was asked for; None = nowhere.

    Raises:
        OSError: the file cannot be written.
    """
    if json_file is None:
        return
    data = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n"
    if json_file == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    else:
        Path(json_file).write_bytes(data)


def progress() -> Progress:
    """Bars on stderr; on anything but a terminal they are printed once, at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
