"""The access log: a line a request, written by a thread of its own, so that no disk makes a request wait.

    request ends ─▶ line ─▶ buffer, at most ``MAX_BUFFER_BYTES`` ─▶ thread, every ``BATCH_S`` ─▶ file, or stdout

Where writing stands still or is too slow the buffer fills, and further lines are dropped; where a write fails
(a full disk, a reader that has gone) its lines are. Both are counted by reason, told once a minute in the router's own log,
and over as soon as writing works again. A line that was cut by a full disk is ended before the next one.

A file that was moved away or deleted is noticed before the next write, and opened anew under its name: a rotation
by renaming needs no signal. SIGHUP opens it anew in any case.
"""

import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext

from router.access_line import json_line, text_line
from router.access_log_config import AccessLogConfig, LogFormat
from router.causes import cause_of
from router.config_sources import ConfigError
from router.hang_up import HangUp
from router.headers import RawHeader
from router.line_buffer import LineBuffer, LineFate
from router.log_sinks import LogFile, Sink, StandardOutput
from router.request_record import RequestRecord

logger = logging.getLogger(__name__)

MAX_BUFFER_BYTES = 16 << 20
BATCH_S = 0.1
CLOSE_S = 2.0
"""That the last lines may take when the router stops."""
_TOLD_EVERY_S = 60.0
_LINES = {LogFormat.JSON: json_line, LogFormat.TEXT: text_line}


class AccessLog:
    """Takes requests as an observer and writes them, until it is closed."""

    def __init__(
        self,
        sink: Sink,
        line_of: Callable[[RequestRecord], bytes],
        max_bytes: int = MAX_BUFFER_BYTES,
        batch_s: float = BATCH_S,
    ) -> None:
        self._sink = sink
        self._line_of = line_of
        self._buffer = LineBuffer(max_bytes)
        self._batch_s = batch_s
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._hung_up = threading.Event()
        self._is_torn = False
        self._told_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    @property
    def fates(self) -> Counter[LineFate]:
        """What became of the lines."""
        return self._buffer.fates

    def begun(self, record: RequestRecord, headers: Sequence[RawHeader]) -> None:
        """Nothing is written of it yet."""

    def ended(self, record: RequestRecord) -> None:
        """Take its line."""
        if self._buffer.add(self._line_of(record)):
            self._wake.set()

    def hang_up(self) -> None:
        """Begin anew with the next lines, as SIGHUP asks."""
        self._hung_up.set()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write what is left, within the time. A thread that hangs in a write is left behind, and its lines are lost."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning("the access log stands still: its last lines are lost")
        else:
            self._sink.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(self._batch_s)
            self._wake.clear()
            self._write(self._buffer.take())
        self._write(self._buffer.take())  # what came during the last write

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self._renew()
        text = b"".join([b"\n" if self._is_torn else b"", *lines])
        num_before = len(text) - sum(map(len, lines))
        num_bytes, error = _write_all(self._sink, text)
        num_written = _num_whole(lines, num_bytes - num_before)
        self._buffer.count(LineFate.WRITTEN, num_written)
        if error is None:
            self._is_torn = False
            return
        if num_bytes:
            self._is_torn = text[num_bytes - 1 : num_bytes] != b"\n"
        self._buffer.count(LineFate.NOT_WRITABLE, len(lines) - num_written)
        self._tell(f"cannot be written: {cause_of(error)}")

    def _renew(self) -> None:
        is_asked = self._hung_up.is_set()
        self._hung_up.clear()
        try:
            self._sink.renew(always=is_asked)
        except OSError as error:
            self._tell(f"cannot be opened anew: {cause_of(error)}")

    def _tell(self, what: str) -> None:
        now = time.monotonic()
        if self._told_at is None or now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            dropped = self.fates[LineFate.NOT_WRITABLE] + self.fates[LineFate.NO_ROOM]
            logger.warning("the access log %s; lines dropped so far: %d", what, dropped)


def _write_all(sink: Sink, data: bytes) -> tuple[int, OSError | None]:
    """How many bytes were written, and why not all."""
    view, num_bytes = memoryview(data), 0
    while num_bytes < len(data):
        try:
            num_bytes += sink.write(view[num_bytes:])
        except OSError as error:
            return num_bytes, error
    return num_bytes, None


def _num_whole(lines: Sequence[bytes], num_bytes: int) -> int:
    """How many lines the bytes hold from the first on."""
    for index, line in enumerate(lines):
        num_bytes -= len(line)
        if num_bytes < 0:
            return index
    return len(lines)


@asynccontextmanager
async def open_access_log(
    config: AccessLogConfig, hang_up: HangUp
) -> AsyncIterator[AccessLog | None]:
    """The log that is configured; None for none. It is written to its end when the context ends.

    Raises:
        ConfigError: its file cannot be opened, or it goes to a standard output that is closed.
    """
    if config.format is LogFormat.OFF:
        yield None
        return
    try:
        sink: Sink = _standard_output() if config.file is None else LogFile(config.file)
    except OSError as error:
        where = "" if config.file is None else f" {config.file}"
        raise ConfigError(f"access_log.file:{where} cannot be opened: {cause_of(error)}") from error
    log = AccessLog(sink, _LINES[config.format])
    try:
        with nullcontext() if config.file is None else hang_up.told_to(log.hang_up):
            yield log
    finally:
        await asyncio.to_thread(log.close)


def _standard_output() -> StandardOutput:
    """The process's own.

    Raises:
        ConfigError: it was started without one.
    """
    if sys.stdout is None:
        raise ConfigError("access_log: it goes to standard output, which is closed")
    return StandardOutput(sys.stdout.fileno())
