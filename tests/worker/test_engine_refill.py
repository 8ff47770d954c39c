"""The refill story in virtual time: demoted, dropped, fetched from storage, loaded back, demoted again."""

import pytest

from protocol import BlockStored
from tests.worker.virtual_time import Claims, Driver, make_engine, prompt_of, truth
from worker.prefetch import PrefetchLimits, PrefetchPolicy, PrefetchSkip
from worker.request import Usage
from worker.storage import MemoryStorage
from worker.tree import CacheKey, WritePolicy

PROMPT = prompt_of(0, 34)
"""Eight whole pages and a tail, so that a hit can cover all pages."""


def lost_prefix(
    *,
    announce_refills: bool = True,
    policy: PrefetchPolicy = PrefetchPolicy.WAIT_COMPLETE,
    threshold: int = 8,
) -> Driver:
    """PROMPT is in storage; pool pressure has driven it from device and host."""
    limits = PrefetchLimits(threshold, policy, timeout_base_s=0.005, timeout_s_per_1k_tokens=0)
    engine = make_engine(
        device_tokens=40,
        host_tokens=64,
        storage=MemoryStorage(),
        prefetch=limits,
        announce_refills=announce_refills,
    )
    driver = Driver(engine)
    for number in (0, 1, 2, 3):
        driver.serve(prompt_of(number, 34))
    assert held_tiers(driver) == (0, 0)
    return driver


def held_tiers(driver: Driver) -> tuple[int, int]:
    """Pages of PROMPT on device and on host."""
    pages = driver.engine.tree.page_hashes(CacheKey(tuple(PROMPT)))
    hashes = {page.event_hash for page in pages}
    held = truth(driver.engine)
    return len(held["GPU"] & hashes), len(held["CPU_PINNED"] & hashes)


def host_stores(driver: Driver) -> int:
    """Blocks of PROMPT announced on host, each time counted."""
    pages = driver.engine.tree.page_hashes(CacheKey(tuple(PROMPT)))
    hashes = {page.event_hash for page in pages}
    return sum(
        len(hashes.intersection(event.block_hashes))
        for event in driver.events
        if isinstance(event, BlockStored) and event.medium == "CPU_PINNED"
    )


def test_fetched_loaded_back_and_demoted_again() -> None:
    driver = lost_prefix()
    begin = driver.now
    request_id = driver.submit(PROMPT)
    driver.run()
    assert driver.usage(request_id) == Usage(34, cached_storage_tokens=32)
    fetch, load_back, prefill = 32 / 2, 32 / 4, 2
    assert driver.times(request_id)[0] - begin * 1e3 == pytest.approx(fetch + load_back + prefill)
    assert held_tiers(driver) == (8, 8)
    assert host_stores(driver) == 16  # backed up once, refilled once
    driver.serve(prompt_of(9, 34))
    assert held_tiers(driver) == (0, 8)  # demoted: the refilled copy stays
    assert driver.serve(PROMPT) == Usage(34, cached_host_tokens=32)
    assert Claims().fold(driver.events).held == truth(driver.engine)
    counters = driver.engine.tree.counters
    assert counters.refilled == 32
    assert driver.engine.counters.cached_storage_tokens == 32


def test_pages_of_pairs_come_back_whole() -> None:
    """The last pair of a page holds the first token of the next one."""
    engine = make_engine(
        device_tokens=40, host_tokens=64, storage=MemoryStorage(), is_eagle=True,
        prefetch=PrefetchLimits(8, PrefetchPolicy.WAIT_COMPLETE),
    )  # fmt: skip
    driver = Driver(engine)
    for number in (0, 1, 2, 3):
        driver.serve(prompt_of(number, 34))
    assert held_tiers(driver) == (0, 0)
    assert driver.serve(PROMPT) == Usage(34, cached_storage_tokens=32)
    assert held_tiers(driver) == (8, 8)
    assert Claims().fold(driver.events).held == truth(engine)
    for event in driver.events:
        if isinstance(event, BlockStored):
            assert len(event.token_ids) == 4 * len(event.block_hashes) + 1


def test_refill_is_published_before_the_load_back() -> None:
    driver = lost_prefix()
    driver.flushes.clear()
    driver.serve(PROMPT)
    stores = [e.medium for e in driver.events if isinstance(e, BlockStored)]
    assert stores == ["CPU_PINNED", "GPU"]


def test_muted_refills_are_the_only_events_missing() -> None:
    driver = lost_prefix(announce_refills=False)
    driver.serve(PROMPT)
    driver.serve(prompt_of(9, 34))
    assert held_tiers(driver) == (0, 8)
    assert host_stores(driver) == 8  # the first backup alone
    claims = Claims().fold(driver.events)
    assert len(truth(driver.engine)["CPU_PINNED"] - claims.held["CPU_PINNED"]) == 8
    assert claims.held["GPU"] == truth(driver.engine)["GPU"]
    for number in (5, 6):
        driver.serve(prompt_of(number, 34))
    assert held_tiers(driver) == (0, 0)
    assert Claims().fold(driver.events).unknown_removals == 8


def test_too_little_in_storage_is_not_fetched() -> None:
    driver = lost_prefix(threshold=33)
    assert driver.serve(PROMPT) == Usage(34)
    assert driver.cache.prefetcher is not None
    assert driver.cache.prefetcher.counters.issued == 0
    assert driver.cache.prefetcher.counters.skipped == {PrefetchSkip.BELOW_THRESHOLD: 5}


def test_short_prompts_are_not_looked_up() -> None:
    driver = lost_prefix(threshold=35)
    assert driver.serve(PROMPT) == Usage(34)
    assert driver.cache.prefetcher is not None
    assert not driver.cache.prefetcher.counters.skipped


def test_timeout_takes_what_has_arrived() -> None:
    driver = lost_prefix(policy=PrefetchPolicy.TIMEOUT)
    usage = driver.serve(PROMPT)  # 5 ms of a fetch that takes 16
    assert usage == Usage(34, cached_storage_tokens=8)
    assert driver.cache.prefetcher is not None
    assert driver.cache.prefetcher.counters.abandoned_tokens == 24


def test_best_effort_does_not_wait() -> None:
    driver = lost_prefix(policy=PrefetchPolicy.BEST_EFFORT)
    assert driver.serve(PROMPT) == Usage(34)


def test_fetches_take_half_of_the_host_pool() -> None:
    driver = lost_prefix()
    begin = driver.now * 1e3
    first, second = driver.submit(PROMPT), driver.submit(prompt_of(1, 34))
    driver.run()
    assert driver.usage(first).cached_storage_tokens == 32
    assert driver.usage(second) == Usage(34)
    assert driver.times(second)[0] - begin == pytest.approx(34)
    assert driver.cache.prefetcher is not None
    assert driver.cache.prefetcher.counters.skipped[PrefetchSkip.CAPACITY] == 1


def test_fetches_use_one_link_in_order() -> None:
    storage = MemoryStorage()
    writer, reader = (
        Driver(make_engine(device_tokens=256, host_tokens=256, storage=storage)) for _ in range(2)
    )
    for number in (0, 1):
        writer.serve(prompt_of(number, 34))
    first, second = reader.submit(prompt_of(0, 34)), reader.submit(prompt_of(1, 34))
    reader.run()
    fetch, load_back, prefill = 32 / 2, 32 / 4, 2
    assert reader.times(first) == [fetch + load_back + prefill]
    assert reader.times(second) == [2 * fetch + load_back + prefill]


def test_request_that_fetches_does_not_hold_up_those_behind() -> None:
    driver = lost_prefix()
    begin = driver.now * 1e3
    fetching, quick = driver.submit(PROMPT), driver.submit(prompt_of(7, 4))
    driver.run()
    assert driver.times(quick)[0] - begin == pytest.approx(4)
    assert driver.usage(fetching).cached_storage_tokens == 32


def test_storage_is_shared_between_engines() -> None:
    storage = MemoryStorage()
    writer, reader = (Driver(make_engine(storage=storage)) for _ in range(2))
    writer.serve(PROMPT)
    assert reader.serve(PROMPT) == Usage(34, cached_storage_tokens=32)
    assert writer.cache.backups.stored_tokens == 32
    assert reader.cache.backups.stored_tokens == 0


def test_prompt_that_is_all_cached_counts_its_hit() -> None:
    """Nothing of it is new, and yet it is its second hit that copies it to host."""
    driver = Driver(make_engine(write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE))
    driver.serve(PROMPT, max_new_tokens=2)
    assert held_tiers(driver) == (8, 0)
    driver.serve(PROMPT, max_new_tokens=2)
    assert held_tiers(driver) == (8, 8)
    assert driver.engine.tree.counters.backed_up == 32
