"""A storage elsewhere: the engine never waits for it, and nothing of it is unbounded."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

import pytest

from tests.worker.virtual_time import Driver, make_engine, prompt_of
from worker.call_threads import BusyError, CallThreads
from worker.remote_storage import RemoteLimits, RemoteStorage, StoreError
from worker.request import EngineRequest, Usage
from worker.storage import encode_page
from worker.tree import HostMode, StoragePage


def page(number: int) -> StoragePage:
    return StoragePage(sha256(number.to_bytes(4, "big")).digest(), (number, 1 << 40))


PAGES = [page(number) for number in range(8)]
DIGESTS = [page.digest for page in PAGES]


class DictClient:
    """A store in a dictionary, which can refuse, or hang until it may go on."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.is_gone = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.num_calls = 0

    def held(self, keys: Sequence[str]) -> list[bool]:
        self._answer()
        return [key in self.contents for key in keys]

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        self._answer()
        return [self.contents.get(key) for key in keys]

    def put(self, keys: Sequence[str], contents: Sequence[bytes]) -> list[bool]:
        self._answer()
        self.contents.update(zip(keys, contents, strict=True))
        return [True] * len(keys)

    def close(self) -> None:
        self._answer()

    def fill(self, pages: Sequence[StoragePage]) -> None:
        self.contents.update({one.digest.hex(): encode_page(one) for one in pages})

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self.may_go_on.clear()
        try:
            yield
        finally:
            self.may_go_on.set()

    def _answer(self) -> None:
        self.num_calls += 1
        self.may_go_on.wait(60.0)
        if self.is_gone:
            raise StoreError("gone")


IMPATIENT = RemoteLimits(patience_s=0.01, batch_pages=3, num_threads=1, max_lookups=1)


async def written(storage: RemoteStorage, pages: Sequence[StoragePage]) -> None:
    """Put pages, and wait until each of them is accounted for."""
    before, counters = len(pages), storage.counters
    before += counters.put + counters.put_known + counters.failed
    storage.put(pages)
    task = asyncio.ensure_future(storage.run())
    while counters.put + counters.put_known + counters.failed < before:  # noqa: ASYNC110  # threads count
        await asyncio.sleep(0)
    task.cancel()
    storage.check()


@pytest.mark.parametrize("batch_pages", [1, 3, 100])
async def test_the_leading_run_of_a_lookup_is_at_hand_until_its_request_leaves(
    batch_pages: int,
) -> None:
    client = DictClient()
    storage = RemoteStorage(client, RemoteLimits(batch_pages=batch_pages))
    client.fill([*PAGES[:4], *PAGES[5:]])
    assert storage.exists(DIGESTS) == storage.fetch(PAGES) == 0
    async with storage.at_hand(PAGES):
        assert storage.exists(DIGESTS) == storage.fetch(PAGES) == 4
        async with storage.at_hand(PAGES[:2]):
            storage.check()
        assert storage.exists(DIGESTS) == 4
    assert len(storage) == storage.exists(DIGESTS) == 0
    assert (storage.counters.hit, storage.counters.missed) == (4, 2)


async def test_what_is_put_is_written_behind_and_found_by_others() -> None:
    client = DictClient()
    ours, theirs = RemoteStorage(client, RemoteLimits(batch_pages=3)), RemoteStorage(client)
    await written(ours, PAGES)
    await written(ours, PAGES[:2])
    assert (ours.counters.put, ours.counters.put_known) == (8, 2)
    async with theirs.at_hand(PAGES):
        assert theirs.fetch(PAGES) == 8


async def test_a_page_with_other_content_ends_the_run_as_corrupt() -> None:
    client = DictClient()
    client.fill([PAGES[0], StoragePage(DIGESTS[1], (9, 9))])
    storage = RemoteStorage(client)
    async with storage.at_hand(PAGES):
        assert storage.fetch(PAGES) == 1
    assert storage.counters.corrupt == 1


async def test_a_store_that_is_gone_costs_hits_and_writes_and_is_counted() -> None:
    client = DictClient()
    client.fill(PAGES)
    client.is_gone = True
    storage = RemoteStorage(client)
    async with storage.at_hand(PAGES):
        assert storage.exists(DIGESTS) == 0
    await written(storage, PAGES[:3])
    assert (storage.counters.unanswered, storage.counters.failed) == (1, 3)


async def test_a_store_that_hangs_costs_a_request_its_patience_alone() -> None:
    client = DictClient()
    client.fill(PAGES)
    storage = RemoteStorage(client, IMPATIENT)
    with client.hanging():
        for _ in range(5):  # two calls hold the two threads, one waits and is given up
            async with storage.at_hand(PAGES):
                assert storage.exists(DIGESTS) == 0
        await storage.close()
    assert storage.counters.unanswered == 6
    assert client.num_calls <= 5


async def test_more_pages_than_may_wait_to_be_written_are_lost_and_counted() -> None:
    storage = RemoteStorage(DictClient(), RemoteLimits(max_unwritten_pages=5))
    assert storage.put(PAGES) == 5
    assert storage.put(PAGES) == 0
    storage.check()
    await storage.close()
    assert storage.counters.failed == 3 + 8 + 5


async def test_no_lookup_begins_beyond_the_bound_of_pages_at_hand() -> None:
    client = DictClient()
    client.fill(PAGES)
    storage = RemoteStorage(client, RemoteLimits(max_pages_at_hand=3))
    async with storage.at_hand(PAGES[:3]), storage.at_hand(PAGES):
        assert len(storage) == 3
    assert storage.counters.unanswered == 1


async def test_calls_beyond_the_bound_are_refused_and_an_end_makes_room() -> None:
    threads, go_on = CallThreads("test", 1, 1), threading.Event()
    calls = [asyncio.ensure_future(threads.call(go_on.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await threads.call(go_on.wait)
    go_on.set()
    assert await asyncio.gather(*calls) == [True, True]
    await asyncio.sleep(0)
    assert await threads.call(lambda: 7) == 7
    threads.close()


@pytest.mark.parametrize("host_mode", HostMode)
async def test_engines_meet_in_it(host_mode: HostMode) -> None:
    """What one wrote behind, another one fetches of what was brought to hand for its request."""
    storage, prompt = RemoteStorage(DictClient()), tuple(prompt_of(0, 34))
    writer, reader = (Driver(make_engine(storage=storage, host_mode=host_mode)) for _ in range(2))
    writer.serve(prompt)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        writing = group.create_task(storage.run())
        while storage.counters.put < 8:  # noqa: ASYNC110  # threads count
            await asyncio.sleep(0)
        writing.cancel()
    request = EngineRequest("r1", prompt, 1)
    async with storage.at_hand(reader.cache.lookup_pages(request)):
        reader.engine.submit(request, reader.now)
        reader.run()
    assert reader.usage("r1") == Usage(34, cached_storage_tokens=32)
    storage.check()
    await storage.close()
