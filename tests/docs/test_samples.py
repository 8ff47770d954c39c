"""Output that a page shows is what comes, but for ports, paths and counts."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loadgen.fleet import free_ports
from prompt import bundled_model_dir
from tests.docs.pages import ROOT, blocks
from tests.kvroute.command import kvroute

DOCTOR = ROOT / "docs" / "how-to" / "check-a-fleet.md"
TIMEOUT_S = 30.0


@contextmanager
def worker(*flags: str) -> Iterator[str]:
    """A simulated engine of its own; its host and port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "kvroute", "worker", "--port", str(port), *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("is ready" in line for line in process.stderr)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)


def plain(text: str) -> list[str]:
    """Its lines, without what differs from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = text.replace(str(bundled_model_dir()), "…/kvroute-sim")
    return [line.rstrip() for line in text.strip().splitlines()]


async def test_the_doctors(monkeypatch: pytest.MonkeyPatch) -> None:
    (sample,) = [one.text for one in blocks("text") if one.page == DOCTOR]
    monkeypatch.setenv("COLUMNS", "120")
    with worker("--no-replay") as address:
        ended = await kvroute("doctor", address, "--listen", "0.1")
    assert ended.code == 1
    assert plain(ended.stdout) == plain(sample)
