"""Where a tap's story is shown: lines for people, JSON lines for programs."""

import os
import select
import sys
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TextIO

import orjson
from rich.console import Console
from rich.text import Text

from kvroute.tap.heard import Heard, Note
from kvroute.tap.line import HEADING, event_lines, note_line
from kvroute.tap.record import event_records, note_record
from kvroute.tap.summary import Summary

_STYLES = {"stored": "green", "removed": "red", "cleared": "bold magenta"}


class Outlet(Protocol):
    """Shows a story piece by piece."""

    def show(self, heard: Heard) -> None:
        """The next piece."""

    def close(self, summary: Summary, seconds: float) -> None:
        """The story is over."""


class Lines:
    """Lines to a stream: with colours on a terminal, plain anywhere else.

    Args:
        shows_events: else notes and the counts alone, where the events go elsewhere.
    """

    def __init__(
        self, stream: TextIO, *, shows_events: bool = True, shows_tokens: bool = False
    ) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False) if stream.isatty() else None
        self._shows_events = shows_events
        self._shows_tokens = shows_tokens
        if shows_events:
            self._write(HEADING, "bold")

    def show(self, heard: Heard) -> None:
        """The next piece."""
        if isinstance(heard, Note):
            self._write(note_line(heard), "bold yellow" if heard.is_fault else "dim")
        elif self._shows_events:
            for event, line in event_lines(heard, shows_tokens=self._shows_tokens):
                self._write(line, _STYLES[event])

    def close(self, summary: Summary, seconds: float) -> None:
        """Tell the counts."""
        self._write(summary.line(seconds), "dim")

    def _write(self, line: str, style: str) -> None:
        if self._console is None:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        else:
            self._console.print(Text(line, style), soft_wrap=True)


@dataclass(slots=True)
class JsonLines:
    """One JSON object a line, written at once; the counts are the last one."""

    stream: BinaryIO
    worker: str
    shows_tokens: bool = False

    def show(self, heard: Heard) -> None:
        """The next piece."""
        if isinstance(heard, Note):
            self._write(note_record(heard, self.worker))
        else:
            for record in event_records(heard, self.worker, shows_tokens=self.shows_tokens):
                self._write(record)

    def close(self, summary: Summary, seconds: float) -> None:
        """Tell the counts."""
        self._write(summary.record(seconds))

    def _write(self, record: dict[str, object]) -> None:
        self.stream.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        self.stream.flush()


def is_stdout_gone() -> bool:
    """Has whoever reads standard output through a pipe gone away? Seen without writing."""
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(events & select.POLLERR for _, events in watch.poll(0))
    except (OSError, ValueError):  # it is no file
        return False


def leave_stdout() -> None:
    """Nobody reads standard output any more: let what is still to be flushed go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
