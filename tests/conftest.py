"""Options and fixtures of the whole suite."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        type=Path,
        default=DATA,
        help="directory of engine recordings, with sglang/ or vllm/ or both in it",
    )
    parser.addoption(
        "--golden-parity",
        type=Path,
        default=DATA / "parity",
        help="directory of recorded chats, a folder a model",
    )
    parser.addoption(
        "--seeds",
        type=int,
        help="runs of each simulated mixture of faults; as many as are quick where it is left out",
    )
    parser.addoption("--first-seed", type=int, help="seed of the first of them")


def pytest_configure(config: pytest.Config) -> None:
    """A directory without recordings would leave every test of them out, and look like success."""
    path: Path = config.getoption("--golden")
    if not any((path / engine).is_dir() for engine in ("sglang", "vllm")):
        raise pytest.UsageError(f"--golden: there is neither {path}/sglang/ nor {path}/vllm/")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    """The directory of engine recordings."""
    path: Path = request.config.getoption("--golden")
    return path


@pytest.fixture(autouse=True)
def _log_of_before() -> Iterator[None]:
    """Commands that run in this process send the whole log to a stream that closes with their test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if root.handlers != handlers:
        root.handlers[:] = handlers
        root.setLevel(level)
