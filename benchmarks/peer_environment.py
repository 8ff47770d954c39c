"""Environments of peers: each a virtual environment of its own, made on the first run and kept in a cache.

A peer is never a dependency of the project. One that cannot be installed is told with the reason, in one
line, and the rest of the benchmark goes on without it. Wheels only: nothing is built here.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INSTALL_WITHIN_S = 180.0
_VERSION_FILE = "installed-version"
_REASON_CHARACTERS = 160


class PeerUnavailable(Exception):  # noqa: N818
    """A peer that cannot be measured here; the message is the reason, one line."""


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """An installed peer."""

    directory: Path
    version: str

    def program(self, name: str) -> str:
        """Path of one of its commands."""
        return str(self.directory / "bin" / name)


def cache_directory() -> Path:
    """Where environments are kept: ``kvroute-benchmarks`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvroute-benchmarks"


def peer_environment(package: str, cache: Path) -> PeerEnvironment:
    """The environment that holds ``package``; made if it is not there or was left half made.

    Raises:
        PeerUnavailable: it could not be made within some minutes, or not at all.
    """
    directory = cache / package
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(cache / f"{package}.lock"):
            if not (directory / _VERSION_FILE).exists():
                _make(package, directory)
            return PeerEnvironment(directory, (directory / _VERSION_FILE).read_text())
    except OSError as error:
        raise PeerUnavailable(reason_of(str(error))) from error


@contextlib.contextmanager
def _one_at_a_time(file: Path) -> Iterator[None]:
    """Two benchmarks at once make an environment once; the wait is bounded as the making is."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(package: str, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    python = str(directory / "bin" / "python")
    _run([sys.executable, "-m", "venv", str(directory)])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", "--only-binary", ":all:", package])
    code = f"from importlib.metadata import version; print(version({package!r}))"
    version = _run([python, "-c", code]).strip()
    (directory / _VERSION_FILE).write_text(version)


def _run(command: list[str]) -> str:
    """What a command prints.

    Raises:
        PeerUnavailable: it failed, or did not end in time.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"not installed within {INSTALL_WITHIN_S:.0f} s") from error
    if done.returncode:
        raise PeerUnavailable(reason_of(done.stderr or done.stdout))
    return done.stdout


def reason_of(output: str) -> str:
    """The line of a failed command's output that says why: the last error, else the last line, cut short."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no reason given"])[-1][:_REASON_CHARACTERS]
