"""Host memory that only stages, in virtual time: written to storage, fetched from it, heard on GPU alone."""

from pathlib import Path

import pytest

from protocol import BlockStored
from tests.worker.virtual_time import MODEL, Claims, Driver, make_engine, prompt_of, truth
from worker.prefetch import PrefetchLimits, PrefetchPolicy, PrefetchSkip
from worker.request import Usage
from worker.staged_writes import WriteDrop
from worker.storage import DirectoryStorage, MemoryStorage, Storage
from worker.tree import CacheKey, HostMode, WritePolicy

PROMPT = prompt_of(0, 34)
"""Eight whole pages and a tail, so that a hit can cover all pages."""


def staging(
    storage: Storage,
    policy: PrefetchPolicy = PrefetchPolicy.WAIT_COMPLETE,
    *,
    device_tokens: int = 40,
    host_tokens: int = 64,
    threshold: int = 8,
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH,
    is_eagle: bool = False,
) -> Driver:
    """An engine whose host pool only stages."""
    limits = PrefetchLimits(threshold, policy, timeout_base_s=0.005, timeout_s_per_1k_tokens=0)
    return Driver(
        make_engine(
            device_tokens=device_tokens, host_tokens=host_tokens, storage=storage, prefetch=limits,
            host_mode=HostMode.BUFFER_ONLY, write_policy=write_policy, is_eagle=is_eagle,
        )
    )  # fmt: skip


def lost_prefix(
    policy: PrefetchPolicy = PrefetchPolicy.WAIT_COMPLETE, *, is_eagle: bool = False
) -> Driver:
    """PROMPT is in storage, and another prompt has driven it from the device."""
    driver = staging(MemoryStorage(), policy, is_eagle=is_eagle)
    driver.serve(PROMPT)
    driver.serve(prompt_of(1, 34))
    assert driver.engine.tree.match(CacheKey(tuple(PROMPT))).tokens == 0
    return driver


def tells_the_truth(driver: Driver) -> None:
    """Folding what was published gives what is held, which is nothing on host, and its pool is whole."""
    claims = Claims().fold(driver.events)
    assert claims.held == truth(driver.engine)
    assert claims.unknown_removals == 0
    assert set(claims.heard) <= {"GPU"}
    host = driver.engine.tree.host
    assert host is not None
    assert host.free == host.capacity


def drops(driver: Driver) -> dict[WriteDrop, int]:
    """Nodes that were not written, by reason."""
    assert driver.cache.buffer is not None
    return dict(driver.cache.buffer.writes.dropped)


@pytest.mark.parametrize("is_eagle", [False, True])
def test_fetched_from_storage_and_heard_on_gpu_alone(is_eagle: bool) -> None:
    driver = lost_prefix(is_eagle=is_eagle)
    driver.flushes.clear()
    begin = driver.now
    request_id = driver.submit(PROMPT)
    driver.run()
    assert driver.usage(request_id) == Usage(34, cached_storage_tokens=32)
    fetch, load_back, prefill = 32 / 2, 32 / 4, 2
    assert driver.times(request_id)[0] - begin * 1e3 == pytest.approx(fetch + load_back + prefill)
    (store,) = [event for event in driver.events if isinstance(event, BlockStored)]
    assert (store.medium, len(store.block_hashes), store.parent_hash) == ("GPU", 8, None)
    assert driver.cache.counters()["tokens_refilled"] == 32
    assert driver.serve(PROMPT) == Usage(34, cached_device_tokens=32)
    host = driver.engine.tree.host
    assert host is not None
    assert host.free == host.capacity


def test_store_is_published_when_the_copy_begins() -> None:
    """The flush that carries it is that of the prefill, which waits for the copy."""
    driver = lost_prefix()
    driver.submit(PROMPT)
    driver.step(driver.now + 16e-3)  # fetched, admitted, on its way to the device
    assert driver.engine.cache.num_events
    assert len(truth(driver.engine)["GPU"]) == 8
    assert driver.cache.pools()["storage_fetches_in_flight_tokens"] == 32
    driver.run()
    assert driver.cache.pools()["storage_fetches_in_flight_tokens"] == 0
    tells_the_truth(driver)


def test_writes_hold_the_device_then_the_host_then_nothing() -> None:
    storage = MemoryStorage()
    driver = staging(storage)
    driver.submit(PROMPT)
    driver.step(34e-3)  # prefilled, and the copy to host begins
    assert driver.engine.tree.room == 40 - 32
    driver.step(34e-3 + MODEL.load_back_s(32))
    assert driver.engine.tree.room == 40
    assert driver.cache.pools()["storage_writes_staged_tokens"] == 32
    assert len(storage) == 0
    driver.step(34e-3 + MODEL.load_back_s(32) + MODEL.fetch_s(32))
    assert driver.cache.pools()["storage_writes_staged_tokens"] == 0
    assert len(storage) == 8
    tells_the_truth(driver)


def test_nothing_is_written_twice_until_a_lookup_misses_it() -> None:
    storage = MemoryStorage(max_pages=12)
    driver = staging(storage, device_tokens=64)
    for _ in range(3):
        driver.serve(PROMPT)
    assert (storage.counters.put, storage.counters.put_known) == (8, 0)
    driver.serve(prompt_of(1, 34))  # four of PROMPT's pages leave storage, the oldest ones
    driver.serve(prompt_of(2, 34))
    assert driver.serve(PROMPT) == Usage(34)
    assert storage.counters.put > 24
    tells_the_truth(driver)


def test_selective_writes_wait_for_a_second_hit() -> None:
    storage = MemoryStorage()
    driver = staging(storage, write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    driver.serve(PROMPT)
    assert len(storage) == 0
    driver.serve(PROMPT)
    assert len(storage) == 8


@pytest.mark.parametrize("policy", PrefetchPolicy)
def test_policies(policy: PrefetchPolicy) -> None:
    driver = lost_prefix(policy)
    stored = {
        PrefetchPolicy.BEST_EFFORT: 0,
        PrefetchPolicy.WAIT_COMPLETE: 32,
        PrefetchPolicy.TIMEOUT: 8,  # 5 ms of a fetch that takes 16
    }[policy]
    assert driver.serve(PROMPT) == Usage(34, cached_storage_tokens=stored)
    assert driver.cache.buffer is not None
    assert driver.cache.buffer.reads.counters.abandoned_tokens == 32 - stored
    tells_the_truth(driver)


def test_reads_wait_for_room_in_the_order_of_their_arrival() -> None:
    storage = MemoryStorage()
    writer = staging(storage, device_tokens=256, host_tokens=256)
    for number in (0, 1):
        writer.serve(prompt_of(number, 34))
    reader = staging(storage, device_tokens=256, host_tokens=40)
    first, second = (reader.submit(prompt_of(number, 34)) for number in (0, 1))
    reader.step(1e-3)
    assert reader.cache.pools()["storage_fetches_in_flight_tokens"] == 32
    reader.run()
    read = (32 / 2) + (32 / 4) + 2
    assert reader.times(first) == [read]
    assert reader.times(second) == [2 * read]
    assert reader.usage(second) == Usage(34, cached_storage_tokens=32)
    tells_the_truth(reader)


def test_parked_read_is_given_up_in_time() -> None:
    storage = MemoryStorage()
    writer = staging(storage, device_tokens=256, host_tokens=256)
    for number in (0, 1):
        writer.serve(prompt_of(number, 34))
    reader = staging(storage, PrefetchPolicy.TIMEOUT, device_tokens=256, host_tokens=40)
    first, second = (reader.submit(prompt_of(number, 34)) for number in (0, 1))
    reader.run()
    assert reader.usage(first) == Usage(34, cached_storage_tokens=8)
    assert reader.usage(second) == Usage(34)
    tells_the_truth(reader)


def test_what_another_request_has_brought_is_not_brought_again() -> None:
    """Both fetched it; the second one finds it on the device, and gives its own back."""
    driver = lost_prefix()
    first, second = driver.submit(PROMPT), driver.submit([*PROMPT, 7])
    driver.run()
    assert driver.usage(first) == Usage(34, cached_storage_tokens=32)
    assert driver.usage(second) == Usage(35, cached_device_tokens=32)
    tells_the_truth(driver)


def test_rest_is_brought_behind_what_the_device_holds() -> None:
    storage = MemoryStorage()
    writer = staging(storage, device_tokens=256, host_tokens=256)
    writer.serve(PROMPT)
    reader = staging(storage, device_tokens=256, host_tokens=256)
    reader.serve(PROMPT[:9])
    assert reader.serve(PROMPT) == Usage(34, cached_device_tokens=8, cached_storage_tokens=24)
    tells_the_truth(reader)


def test_what_has_lost_its_beginning_is_given_back() -> None:
    """The device held the first pages when the fetch began, and does not when it is over."""
    storage = MemoryStorage()
    staging(storage, device_tokens=256, host_tokens=256).serve(PROMPT)
    driver = staging(storage)
    driver.serve(PROMPT[:9])
    request_id = driver.submit(PROMPT)
    driver.submit(prompt_of(1, 34))
    driver.run()
    assert driver.usage(request_id) == Usage(34)
    assert driver.cache.buffer is not None
    counters = driver.cache.buffer.reads.counters
    assert (counters.fetched_tokens, counters.refilled_tokens) == (8 + 24, 8)
    assert counters.abandoned_tokens == 24
    tells_the_truth(driver)


def test_cancelled_requests_give_back_what_they_read() -> None:
    for at_ms in (1, 16, 20):  # fetching; on its way to the device, in two places
        driver = lost_prefix()
        request_id = driver.submit(PROMPT)
        driver.step(driver.now + at_ms / 1e3)
        driver.engine.cancel(request_id, driver.now)
        driver.run()
        tells_the_truth(driver)


def test_too_little_and_too_large() -> None:
    storage = MemoryStorage()
    staging(storage, device_tokens=256, host_tokens=256).serve(PROMPT)
    reader = staging(storage, device_tokens=256, host_tokens=16, threshold=16)
    assert reader.serve(PROMPT) == Usage(34)
    assert reader.cache.buffer is not None
    assert reader.cache.buffer.reads.counters.skipped == {PrefetchSkip.CAPACITY: 1}
    assert drops(reader) == {WriteDrop.TOO_LARGE: 1}
    assert reader.serve(prompt_of(5, 34)) == Usage(34)
    assert reader.cache.buffer.reads.counters.skipped[PrefetchSkip.BELOW_THRESHOLD] == 1
    tells_the_truth(reader)


def test_child_of_what_is_not_written_is_not_written() -> None:
    """Storage would hold it behind a hole for ever."""
    storage = MemoryStorage()
    driver = staging(storage, device_tokens=256, host_tokens=16)
    driver.serve(PROMPT)
    driver.serve([*PROMPT[:32], *prompt_of(3, 10)])
    assert drops(driver) == {WriteDrop.TOO_LARGE: 2, WriteDrop.PARENT_MISSING: 1}
    assert len(storage) == 0


def test_flushed_cache_forgets_what_is_under_way() -> None:
    driver = staging(MemoryStorage())
    driver.serve(PROMPT[:8])
    driver.submit(PROMPT)
    driver.step(driver.now + 30e-3)
    assert not driver.engine.is_idle
    assert driver.engine.flush_cache(driver.now)
    driver.run()
    tells_the_truth(driver)


def test_directory_is_shared_between_modes(tmp_path: Path) -> None:
    """What one worker staged, another one with a host tier fetches, and the other way round."""
    storage = DirectoryStorage(tmp_path)
    staged = staging(storage)
    cached = Driver(make_engine(storage=storage))
    staged.serve(PROMPT)
    assert cached.serve(PROMPT) == Usage(34, cached_storage_tokens=32)
    cached.serve(prompt_of(1, 34))
    assert staged.serve(prompt_of(1, 34)) == Usage(34, cached_storage_tokens=32)
    tells_the_truth(staged)


def test_without_storage_there_is_nothing_to_stage() -> None:
    driver = Driver(make_engine(host_mode=HostMode.BUFFER_ONLY))
    driver.serve(PROMPT)
    assert driver.cache.buffer is None
    assert driver.serve(PROMPT) == Usage(34, cached_device_tokens=32)
    tells_the_truth(driver)
