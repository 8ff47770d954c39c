"""A stamp of files: what changes when one of them does, for a few looks at the disk."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


def stamp_of(files: Iterable[Path]) -> Stamp:
    """What changes with the files; nothing of one that is missing."""
    found = []
    for path in files:
        try:
            told = path.stat()
        except OSError:
            continue
        found.append((told.st_mtime_ns, told.st_ino, told.st_size))
    return tuple(found)
