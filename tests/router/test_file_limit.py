"""The limit of open files is raised, and what it allows is worked out from it."""

import logging
import subprocess
import sys

import pytest

from router.file_limit import connections_within, sockets_within

_CHILD = """
import logging, resource, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
from router.file_limit import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print("may open", raise_file_limit())
print("now", resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def _run(soft: int, hard: int) -> str:
    script = _CHILD.format(soft=soft, hard=hard)
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return found.stdout


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    told = _run(256, 5000)
    assert "INFO limit of open files raised from 256 to 5000" in told
    assert "may open 5000" in told
    assert "now (5000, 5000)" in told
    assert "WARNING" not in told


def test_a_low_hard_limit_is_told() -> None:
    told = _run(256, 512)
    assert "WARNING only 512 files may be open: enough for about 42 event sources" in told
    assert "LimitNOFILE" in told


def test_what_is_raised_already_stays() -> None:
    told = _run(5000, 5000)
    assert told.splitlines() == ["may open 5000", "now (5000, 5000)"]


@pytest.mark.parametrize(
    ("num_files", "num_sockets"),
    [(0, 64), (100, 64), (1024, 341), (20_000, 6_666), (1 << 20, 65_535)],
)
def test_half_of_the_files_are_for_events(num_files: int, num_sockets: int) -> None:
    assert sockets_within(num_files) == num_sockets


@pytest.mark.parametrize(
    ("num_files", "wanted", "num_connections"),
    [(0, 10, 1), (200, 16_384, 100), (20_000, 16_384, 10_000), (20_000, 64, 64), (1 << 20, 16_384, 16_384)],
)  # fmt: skip
def test_clients_leave_half_of_the_files_to_workers(
    num_files: int, wanted: int, num_connections: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert connections_within(num_files, wanted) == num_connections
    assert ("limits.max_connections" in caplog.text) is (num_connections < wanted)
