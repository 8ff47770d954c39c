"""The access log's writer: rotation, full disks, readers that hang or leave, and its end."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from errno import ENOSPC, EPIPE
from pathlib import Path

import pytest

from router.access_line import json_line
from router.access_log import AccessLog, open_access_log
from router.access_log_config import AccessLogConfig, LogFormat
from router.config_sources import ConfigError
from router.hang_up import HangUp
from router.line_buffer import LineFate
from router.log_sinks import LogFile, StandardOutput
from router.request_record import RequestRecord
from tests.router.records import record

LINE = b"0123456789\n"


def ten(_record: RequestRecord) -> bytes:
    return LINE


class ScriptedSink:
    """Takes as many bytes as it is told; each write is waited for."""

    def __init__(self, *room: int | OSError) -> None:
        self.room = list(room)
        self.data = b""
        self.num_renewed: list[bool] = []
        self.is_closed = False
        self.written = threading.Semaphore(0)
        self.fault: OSError | None = None

    def write(self, data: memoryview) -> int:
        """As the script says; all, once it has ended."""
        room = self.room.pop(0) if self.room else len(data)
        try:
            if isinstance(room, OSError):
                raise room
            self.data += bytes(data[:room])
            return min(room, len(data))
        finally:
            self.written.release()

    def renew(self, *, always: bool) -> None:
        """Remember it."""
        self.num_renewed.append(always)
        if self.fault is not None:
            raise self.fault

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


class HangingSink(ScriptedSink):
    """Hangs in its first write, until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.goes_on = threading.Event(), threading.Event()

    def write(self, data: memoryview) -> int:
        """Hang, then take all."""
        self.hangs.set()
        self.goes_on.wait()
        return super().write(data)


def write(log: AccessLog, num_lines: int = 1) -> None:
    for _ in range(num_lines):
        log.ended(record())


def test_lines_are_written_in_order_and_counted() -> None:
    sink = ScriptedSink(3, 5)
    log = AccessLog(sink, ten, batch_s=0.001)
    write(log, 3)
    log.close()
    assert sink.data == LINE * 3
    assert sink.is_closed
    assert log.fates == {LineFate.WRITTEN: 3}


def test_a_full_disk_costs_the_lines_it_has_no_room_for_and_tears_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = OSError(ENOSPC, os.strerror(ENOSPC))
    sink = ScriptedSink(len(LINE) + 4, full, full)
    log = AccessLog(sink, ten, batch_s=0.05)
    write(log, 3)  # one whole, one cut, one lost
    assert all(sink.written.acquire(timeout=5) for _ in range(2))
    write(log)
    assert sink.written.acquire(timeout=5)
    write(log)  # there is room again
    log.close()
    assert sink.data == LINE + LINE[:4] + b"\n" + LINE
    assert log.fates == {LineFate.WRITTEN: 2, LineFate.NOT_WRITABLE: 3}
    told = [one.getMessage() for one in caplog.records]
    assert told == [
        "the access log cannot be written: no space left on device; lines dropped so far: 2"
    ]


def test_a_sink_that_hangs_makes_nobody_wait_and_fills_no_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = HangingSink()
    log = AccessLog(sink, ten, 5 * len(LINE), 0.001)
    write(log)
    assert sink.hangs.wait(5)
    write(log, 1000)
    log.close(0.01)
    assert "stands still" in caplog.text
    assert log.fates == {LineFate.NO_ROOM: 995}
    sink.goes_on.set()
    log.close()
    assert sink.is_closed
    assert log.fates[LineFate.WRITTEN] in (1, 6)


def test_lines_that_come_during_the_last_write_are_written_too() -> None:
    sink = HangingSink()
    log = AccessLog(sink, ten, batch_s=0.001)
    write(log)
    assert sink.hangs.wait(5)
    write(log, 2)
    log.close(0.01)
    sink.goes_on.set()
    log.close()
    assert (sink.data, log.fates) == (LINE * 3, {LineFate.WRITTEN: 3})


def test_standard_output_is_written_to_and_stays_open() -> None:
    reading, writing = os.pipe()
    log = AccessLog(StandardOutput(writing), ten, batch_s=0.001)
    write(log, 2)
    log.close()
    assert os.read(reading, 100) == LINE * 2
    os.close(reading)
    os.close(writing)


def test_a_reader_that_has_gone_is_counted() -> None:
    sink = ScriptedSink(OSError(EPIPE, "broken pipe"))
    log = AccessLog(sink, ten, batch_s=0.001)
    write(log)
    log.close()
    assert log.fates == {LineFate.NOT_WRITABLE: 1}


def test_what_cannot_be_opened_anew_goes_on_where_it_was() -> None:
    sink = ScriptedSink()
    sink.fault = PermissionError(13, "no")
    log = AccessLog(sink, ten, batch_s=0.001)
    write(log)
    log.close()
    assert (sink.data, log.fates) == (LINE, {LineFate.WRITTEN: 1})


def test_a_hang_up_begins_anew_once() -> None:
    sink = ScriptedSink()
    log = AccessLog(sink, ten, batch_s=0.001)
    log.hang_up()
    write(log)
    assert sink.written.acquire(timeout=5)
    write(log)
    log.close()
    assert sink.num_renewed == [True, False]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


@pytest.fixture
def log_file(path: Path) -> Iterator[LogFile]:
    made = LogFile(path)
    yield made
    made.close()


def append(file: LogFile, data: bytes) -> None:
    file.renew(always=False)
    assert file.write(memoryview(data)) == len(data)


def test_a_file_is_appended_to_and_not_for_everybody(path: Path) -> None:
    path.write_bytes(b"before\n")
    path.unlink()
    for data in (b"one\n", b"two\n"):
        file = LogFile(path)
        append(file, data)
        file.close()
    assert path.read_bytes() == b"one\ntwo\n"
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_file_that_was_moved_away_is_opened_anew(
    path: Path, log_file: LogFile, is_made_anew: bool
) -> None:
    append(log_file, b"one\n")
    moved = path.rename(path.with_suffix(".1"))
    if is_made_anew:
        path.touch()
    append(log_file, b"two\n")
    assert (moved.read_bytes(), path.read_bytes()) == (b"one\n", b"two\n")


def test_a_file_that_was_emptied_goes_on_at_its_start(path: Path, log_file: LogFile) -> None:
    append(log_file, b"one\n")
    os.truncate(path, 0)
    append(log_file, b"two\n")
    assert path.read_bytes() == b"two\n"


def test_a_place_that_is_gone_leaves_the_file_open(path: Path, log_file: LogFile) -> None:
    append(log_file, b"one\n")
    moved = path.parent.rename(path.parent.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError):
        log_file.renew(always=False)
    assert log_file.write(memoryview(b"two\n")) == 4
    assert (moved / path.name).read_bytes() == b"one\ntwo\n"


def test_a_pipe_that_nobody_reads_is_not_waited_for(path: Path, log_file: LogFile) -> None:
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device or address"):
        LogFile(path)
    with pytest.raises(OSError, match="No such device or address"):
        log_file.renew(always=False)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    append(log_file, b"one\n")
    assert os.read(reader, 99) == b"one\n"
    os.close(reader)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def test_the_configured_log(path: Path) -> None:
    hang_up = HangUp()
    async with open_access_log(AccessLogConfig(), hang_up) as none:
        assert none is None
    chosen = AccessLogConfig(format=LogFormat.JSON, file=path)
    async with open_access_log(chosen, hang_up) as log:
        assert log is not None
        os.kill(os.getpid(), signal.SIGHUP)
        log.ended(record())
    assert content(path) == json_line(record())
    assert json.loads(content(path))["request_id"] == "id-1"


async def test_a_log_that_cannot_be_had_says_where(path: Path) -> None:
    chosen = AccessLogConfig(format=LogFormat.TEXT, file=path / "x" / "y.log")
    with pytest.raises(ConfigError, match=r"access_log\.file: .*y\.log cannot be opened: no such"):
        async with open_access_log(chosen, HangUp()):
            pass


@pytest.mark.parametrize(("value", "meaning"), [(False, "off"), ("off", "off"), ("json", "json")])
def test_yaml_reads_off_as_false(value: object, meaning: str) -> None:
    assert AccessLogConfig.model_validate({"format": value}).format == meaning


def test_true_is_no_format() -> None:
    with pytest.raises(ValueError, match="format"):
        AccessLogConfig.model_validate({"format": True})
