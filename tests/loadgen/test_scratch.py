"""Where logs go: away when all is well or the user stops, kept with a note when a run failed."""

import shutil
from pathlib import Path

import pytest

from loadgen.scratch import scratch_directory


def leave(seen: list[Path], error: BaseException | None) -> None:
    with scratch_directory() as path:
        seen.append(path)
        (path / "log").write_text("x")
        if error is not None:
            raise error


def test_nothing_is_left_of_a_good_run() -> None:
    seen: list[Path] = []
    leave(seen, None)
    assert not seen[0].exists()


def test_nothing_is_left_of_an_interrupted_run() -> None:
    seen: list[Path] = []
    with pytest.raises(KeyboardInterrupt):
        leave(seen, KeyboardInterrupt())
    assert not seen[0].exists()


def test_a_failure_keeps_it_and_says_where() -> None:
    seen: list[Path] = []
    error = RuntimeError("bad")
    with pytest.raises(RuntimeError, match="bad"):
        leave(seen, error)
    assert (seen[0] / "log").exists()
    assert error.__notes__ == [f"logs are kept in {seen[0]}"]
    shutil.rmtree(seen[0])
