"""L3: a page store that workers share, keyed by storage digest.

A page's content is its token ids alone, which is all a simulated worker needs and lets a read prove
that it got the right page. Both backends here are bounded and drop their oldest pages first; what is gone,
corrupt or foreign ends the run that a read returns, and is counted.
"""

import os
import tempfile
import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from worker.tree import StoragePage

DEFAULT_MAX_PAGES = 1 << 20
_FAN_OUT = 256
_ABANDONED_AFTER_S = 3_600.0
_MAGIC = b"kvroute page 1\n\0"


@dataclass(slots=True)
class StorageCounters:
    """Pages, since construction of this handle.

    Attributes:
        put: written; ``put_known`` were there already.
        hit: read and proved; ``missed`` ended a run because it was not there.
        corrupt: there, but not the page its name promises.
        evicted: dropped at the bound.
        failed: the backend refused a write (disk full, no permission).
        abandoned: half written by a process that ended meanwhile; removed when the store is opened.
        unanswered: lookups in a store elsewhere that it refused or did not answer in time.
    """

    put: int = 0
    put_known: int = 0
    hit: int = 0
    missed: int = 0
    corrupt: int = 0
    evicted: int = 0
    failed: int = 0
    abandoned: int = 0
    unanswered: int = 0


class Storage(Protocol):
    """What a worker needs of L3."""

    @property
    def counters(self) -> StorageCounters:
        """What this handle did."""
        ...

    def exists(self, digests: Sequence[bytes]) -> int:
        """Length of the leading run of pages that are held; contents are not looked at."""
        ...

    def put(self, pages: Sequence[StoragePage]) -> int:
        """Write pages; returns how many were new."""
        ...

    def fetch(self, pages: Sequence[StoragePage]) -> int:
        """Read pages; returns the length of the leading run whose content is as expected."""
        ...


class MemoryStorage:
    """Pages in this process, shared by the workers that are given the same object."""

    def __init__(self, max_pages: int = DEFAULT_MAX_PAGES) -> None:
        if max_pages < 1:
            raise ValueError("max_pages is at least 1")
        self._max_pages = max_pages
        self._pages: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()
        self._counters = StorageCounters()

    @property
    def counters(self) -> StorageCounters:
        """What this store did, for all who share it."""
        return self._counters

    def __len__(self) -> int:
        return len(self._pages)

    def exists(self, digests: Sequence[bytes]) -> int:
        """Length of the leading run held. O(run)."""
        return next(
            (i for i, digest in enumerate(digests) if digest not in self._pages), len(digests)
        )

    def put(self, pages: Sequence[StoragePage]) -> int:
        """Write pages; a page written again counts as young again. O(pages)."""
        new = 0
        for page in pages:
            if page.digest in self._pages:
                self._pages.move_to_end(page.digest)
                self._counters.put_known += 1
                continue
            self._pages[page.digest] = page.tokens
            new += 1
        self._counters.put += new
        while len(self._pages) > self._max_pages:
            self._pages.popitem(last=False)
            self._counters.evicted += 1
        return new

    def fetch(self, pages: Sequence[StoragePage]) -> int:
        """Length of the leading run with the expected content. O(run)."""
        for index, page in enumerate(pages):
            tokens = self._pages.get(page.digest)
            if tokens != page.tokens:
                count_end_of_run(self._counters, index, is_there=tokens is not None)
                return index
        self._counters.hit += len(pages)
        return len(pages)


class DirectoryStorage:
    """Pages as files, shared by every process that opens the same directory.

        DIR/3a/3a7f…(64 hex digits)     magic ‖ token ids as little-endian u64
        DIR/aside/…                     pages that are being written

    A file appears whole (written aside, then renamed). What has lain aside for an hour was left by a
    writer that is gone, and is removed when the directory is opened. The bound is kept per first byte: a directory
    that grew beyond its 256th of ``max_pages`` loses its oldest files. Each process rescans after
    writing an eighth of that share, so several writers together overshoot by at most that much each.
    Names that are no digest are never read nor removed.
    """

    def __init__(self, directory: Path, max_pages: int = DEFAULT_MAX_PAGES) -> None:
        """Create the directory where it is missing, and remove what dead writers left.

        Raises:
            OSError: it cannot be created.
        """
        if max_pages < 1:
            raise ValueError("max_pages is at least 1")
        self._directory = directory
        self._aside = directory / "aside"
        self._aside.mkdir(parents=True, exist_ok=True)
        self._share = max(1, -(-max_pages // _FAN_OUT))
        self._unscanned: dict[str, int] = {}
        self._counters = StorageCounters()
        self._remove_abandoned(time.time() - _ABANDONED_AFTER_S)

    @property
    def counters(self) -> StorageCounters:
        """What this handle did; other processes count for themselves."""
        return self._counters

    def exists(self, digests: Sequence[bytes]) -> int:
        """Length of the leading run held. One stat a page."""
        return next(
            (i for i, digest in enumerate(digests) if not self._path(digest).is_file()),
            len(digests),
        )

    def put(self, pages: Sequence[StoragePage]) -> int:
        """Write pages; one rename each. A page that cannot be written is counted and left out."""
        return sum(self._put_page(page) for page in pages)

    def fetch(self, pages: Sequence[StoragePage]) -> int:
        """Length of the leading run with the expected content. One read a page."""
        for index, page in enumerate(pages):
            content = self._read(page.digest)
            if content != encode_page(page):
                count_end_of_run(self._counters, index, is_there=content is not None)
                return index
        self._counters.hit += len(pages)
        return len(pages)

    def _put_page(self, page: StoragePage) -> bool:
        path = self._path(page.digest)
        if path.is_file() and self._read(page.digest) == encode_page(page):
            self._counters.put_known += 1
            return False
        try:
            self._write_whole(path, encode_page(page))
        except OSError:
            self._counters.failed += 1
            return False
        self._counters.put += 1
        self._keep_bound(path.parent)
        return True

    def _write_whole(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=self._aside)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(aside).replace(path)
        except OSError:
            Path(aside).unlink(missing_ok=True)
            raise

    def _remove_abandoned(self, oldest_s: float) -> None:
        for path in self._aside.iterdir():
            try:
                is_abandoned = path.stat().st_mtime < oldest_s
                if is_abandoned:
                    path.unlink()
            except OSError:
                continue  # finished or removed meanwhile, or not ours to remove
            self._counters.abandoned += is_abandoned

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._directory / name[:2] / name

    def _read(self, digest: bytes) -> bytes | None:
        try:
            return self._path(digest).read_bytes()
        except OSError:
            return None

    def _keep_bound(self, folder: Path) -> None:
        """Scan at a handle's first write to a folder, and after every eighth of the share."""
        unscanned = self._unscanned.get(folder.name, self._share) + 1
        self._unscanned[folder.name] = unscanned
        if unscanned * 8 <= self._share:
            return
        self._unscanned[folder.name] = 0
        ages = sorted(_page_ages(folder))
        for _, path in ages[: max(0, len(ages) - self._share)]:
            path.unlink(missing_ok=True)
            self._counters.evicted += 1


def count_end_of_run(counters: StorageCounters, hits: int, *, is_there: bool) -> None:
    """Count a read that ended after ``hits`` pages, at one that is another or not there."""
    counters.hit += hits
    if is_there:
        counters.corrupt += 1
    else:
        counters.missed += 1


def encode_page(page: StoragePage) -> bytes:
    """A page as bytes."""
    ids = array("Q", page.tokens)
    return _MAGIC + ids.tobytes()


def _page_ages(folder: Path) -> list[tuple[int, Path]]:
    """(mtime in ns, path) of the files that are named like pages."""
    ages = []
    for path in folder.iterdir():
        if len(path.name) != 64 or not path.name.startswith(folder.name):
            continue
        try:
            ages.append((path.stat().st_mtime_ns, path))
        except OSError:
            continue  # another process removed it
    return ages
