"""Both page stores hold to one contract; the directory is safe from what else lies in it."""

import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from worker.storage import DirectoryStorage, MemoryStorage, Storage
from worker.tree import StoragePage

Make = Callable[[int], Storage]


def page(number: int) -> StoragePage:
    return StoragePage(sha256(number.to_bytes(4, "big")).digest(), (number, 1 << 40))


PAGES = [page(number) for number in range(8)]
DIGESTS = [page.digest for page in PAGES]


@pytest.fixture(params=["memory", "directory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Builds a store with a bound in pages."""
    if request.param == "memory":
        return MemoryStorage
    return lambda max_pages: DirectoryStorage(tmp_path / "pages", max_pages)


def test_a_run_ends_at_the_first_page_that_is_not_held(make: Make) -> None:
    storage = make(10_000)
    assert storage.exists(DIGESTS) == storage.fetch(PAGES) == 0
    assert storage.put([*PAGES[:3], *PAGES[4:]]) == 7
    assert storage.exists(DIGESTS) == storage.fetch(PAGES) == 3
    assert storage.exists([]) == storage.fetch([]) == 0
    assert storage.counters.put == 7
    assert storage.counters.hit == 3
    assert storage.counters.missed == 2


def test_a_page_put_twice_is_counted_once(make: Make) -> None:
    storage = make(10_000)
    storage.put(PAGES[:1])
    assert storage.put(PAGES[:2]) == 1
    assert (storage.counters.put, storage.counters.put_known) == (2, 1)


def test_a_page_with_other_content_ends_the_run_as_corrupt(make: Make) -> None:
    storage = make(10_000)
    storage.put([PAGES[0], StoragePage(DIGESTS[1], (9, 9))])
    assert storage.fetch(PAGES) == 1
    assert storage.counters.corrupt == 1


def test_a_bound_below_one_page_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="max_pages"):
        make(0)


def test_memory_drops_its_oldest_pages_at_the_bound() -> None:
    storage = MemoryStorage(max_pages=3)
    storage.put(PAGES[:3])
    storage.put([PAGES[0], PAGES[3]])
    assert len(storage) == 3
    assert [storage.exists([digest]) for digest in DIGESTS[:4]] == [1, 0, 1, 1]
    assert storage.counters.evicted == 1


def test_a_directory_is_shared_by_all_who_open_it(tmp_path: Path) -> None:
    ours, theirs = DirectoryStorage(tmp_path), DirectoryStorage(tmp_path)
    ours.put(PAGES)
    assert theirs.fetch(PAGES) == len(PAGES)


def test_a_directory_keeps_its_bound_per_first_byte(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path, max_pages=512)
    family = [StoragePage(bytes([7]) + bytes([n]) * 31, (n,)) for n in range(20)]
    for member in family:
        storage.put([member])
    left = [path for path in (tmp_path / "07").iterdir() if len(path.name) == 64]
    assert len(left) == 2
    assert storage.counters.evicted == 18


@pytest.mark.parametrize("content", [b"", b"garbage", b"kvroute page 1\n\0half"])
def test_a_torn_or_foreign_file_is_no_page_and_is_written_anew(
    tmp_path: Path, content: bytes
) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.put(PAGES[:1])
    path = tmp_path / DIGESTS[0].hex()[:2] / DIGESTS[0].hex()
    path.write_bytes(content)
    assert storage.fetch(PAGES[:1]) == 0
    assert storage.counters.corrupt == 1
    assert storage.put(PAGES[:1]) == 1
    assert storage.fetch(PAGES[:1]) == 1


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path, max_pages=256)
    folder = tmp_path / "07"
    folder.mkdir()
    (folder / "README").write_text("not a page")
    for n in range(4):
        storage.put([StoragePage(bytes([7]) + bytes([n]) * 31, (n,))])
    assert (folder / "README").exists()
    assert storage.counters.evicted == 3


def test_a_page_that_cannot_be_written_is_counted_and_left_out(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    (tmp_path / DIGESTS[0].hex()[:2]).write_text("a file where a folder should be")
    assert storage.put(PAGES[:2]) == 1
    assert storage.counters.failed == 1
    assert storage.exists(DIGESTS[:1]) == 0


def test_what_dead_writers_left_is_removed_at_the_next_opening(tmp_path: Path) -> None:
    DirectoryStorage(tmp_path)
    old, young = tmp_path / "aside" / "old", tmp_path / "aside" / "young"
    for path in (old, young):
        path.write_bytes(b"kvroute pa")
    os.utime(old, (0, 0))
    storage = DirectoryStorage(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
    assert storage.counters.abandoned == 1


def test_nothing_lies_aside_when_all_is_written(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.put(PAGES)
    (tmp_path / DIGESTS[0].hex()[:2] / DIGESTS[0].hex()).unlink()
    (tmp_path / DIGESTS[0].hex()[:2] / DIGESTS[0].hex()).mkdir()
    assert storage.put(PAGES[:1]) == 0
    assert storage.counters.failed == 1
    assert not list((tmp_path / "aside").iterdir())


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        DirectoryStorage(tmp_path / "file")


WRITER = """
import sys
from pathlib import Path
from tests.worker.test_storage import page
from worker.storage import DirectoryStorage
storage = DirectoryStorage(Path(sys.argv[1]))
print(flush=True)
for number in range(1 << 30):
    storage.put([page(number)])
"""


def test_processes_that_write_at_once_and_are_killed_leave_whole_pages(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    storage = DirectoryStorage(tmp_path)
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline()
        while not storage.exists([page(300).digest]):
            assert all(writer.poll() is None for writer in writers)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    written = storage.exists([page(number).digest for number in range(10_000)])
    assert written > 300
    assert storage.fetch([page(number) for number in range(written)]) == written
    assert storage.counters.corrupt == 0
