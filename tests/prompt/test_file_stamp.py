"""A stamp changes with the files, however they change, and not by itself."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from prompt.file_stamp import stamp_of


def grow(path: Path) -> None:
    path.write_text("longer")


def replace_alike(path: Path) -> None:
    """By another of the same size and time."""
    told, other = path.stat(), path.with_suffix(".new")
    other.write_text("b")
    os.utime(other, ns=(told.st_atime_ns, told.st_mtime_ns))
    other.rename(path)


def touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))


@pytest.mark.parametrize("change", [grow, replace_alike, touch, Path.unlink])
def test_every_change_is_seen(change: Callable[[Path], None], tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_text("a")
    before = stamp_of([one, other])
    assert stamp_of([one, other]) == before
    change(one)
    assert stamp_of([one, other]) != before


def test_a_missing_file_has_none_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "one"
    assert stamp_of([path]) == ()
    path.write_text("a")
    assert len(stamp_of([path])) == 1
