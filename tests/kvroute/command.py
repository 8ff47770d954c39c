"""The command line as a child process.

The first half second of a command is spent on imports. So children are forked from a server that has imported it
all; what a command is from its first moment on, ``test_cli`` and ``test_interrupting`` show.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvroute.cli import main
from kvroute.command_line import COMMANDS

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    ["__main__", "tests.kvroute.command", *(f"kvroute.commands.{one}" for one in COMMANDS)]
)


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


async def kvroute(*arguments: str, timeout_s: float = 60.0) -> Ended:
    """Run ``kvroute`` with the arguments to its end."""
    with tempfile.TemporaryDirectory() as directory:
        texts = Path(directory, "stdout"), Path(directory, "stderr")
        process = _FORKED.Process(
            target=_run, args=(arguments, *map(str, texts), dict(os.environ), str(Path.cwd()))
        )
        await asyncio.to_thread(process.start)
        try:
            await asyncio.to_thread(process.join, timeout_s)
        finally:
            if process.exitcode is None:
                process.kill()
                await asyncio.to_thread(process.join)
        assert process.exitcode is not None
        stdout, stderr = (text.read_text() for text in texts)
    return Ended(process.exitcode, stdout, stderr)


def _run(
    arguments: Sequence[str], stdout: str, stderr: str, environment: dict[str, str], place: str
) -> None:
    """What the child does, as ``python -m kvroute`` would."""
    opened = [
        (0, os.devnull, os.O_RDONLY),
        *((n, at, os.O_WRONLY | os.O_CREAT) for n, at in ((1, stdout), (2, stderr))),
    ]
    for number, path, flags in opened:
        file = os.open(path, flags)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    sys.argv = ["kvroute", *arguments]
    main()
