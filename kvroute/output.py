"""Where commands write: results as JSON to a file or stdout, everything for people to the terminal.

With ``--json -`` stdout holds the JSON and nothing else; tables then go to stderr, where progress always goes.
A file that cannot be written is refused with the other wrong flags, before any work is done.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvroute.running import fail
from router.causes import cause_of


def _require_writable(json_file: str | None) -> str | None:
    """Open the file for writing and leave it as it was.

    Raises:
        typer.BadParameter: it cannot be opened.
    """
    if json_file is None or json_file == "-":
        return json_file
    path = Path(json_file)
    try:
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {cause_of(error)}") from error
    return json_file


JsonFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the result as JSON to FILE; - = stdout.",
        callback=_require_writable,
    ),
]

_FILE_WIDTH = 140


def console_beside(json_file: str | None) -> Console:
    """The console for tables: stdout, or stderr where stdout is taken by the JSON.

    What is no terminal has no width of its own and gets room for the widest table, unless ``COLUMNS`` says one.
    """
    console = Console(stderr=json_file == "-")
    has_width = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if has_width else Console(stderr=json_file == "-", width=_FILE_WIDTH)


def write_json(json_file: str | None, result: Mapping[str, object]) -> None:
    """Write the result where it was asked for; None = nowhere.

    Raises:
        typer.Exit: with 1, the file cannot be written any more.
    """
    if json_file is None:
        return
    data = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n"
    if json_file == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    else:
        _write(Path(json_file), data)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        fail(f"--json: {path}: {cause_of(error)}")


def progress() -> Progress:
    """Bars on stderr; on anything but a terminal they are printed once, at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
