"""Options and fixtures of the whole suite."""

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


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    """The directory of engine recordings."""
    path: Path = request.config.getoption("--golden")
    return path
