"""Requests that end early, in every phase: nothing leaks, and what was computed stays cached."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.worker.virtual_time import Claims, Driver, make_engine, prompt_of, truth
from worker.prefetch import PrefetchLimits, PrefetchPolicy
from worker.request import Usage
from worker.storage import MemoryStorage
from worker.tree import WritePolicy

NUM_PHASES = 24


def busy_driver(write_policy: WritePolicy = WritePolicy.WRITE_THROUGH) -> Driver:
    """Requests that wait, fetch from storage, load back, are cut into chunks and decode."""
    storage = MemoryStorage()
    Driver(make_engine(storage=storage)).serve(prompt_of(0, 34))
    engine = make_engine(
        device_tokens=44,
        host_tokens=72,
        write_policy=write_policy,
        storage=storage,
        prefetch=PrefetchLimits(threshold=8, policy=PrefetchPolicy.WAIT_COMPLETE),
        chunk_tokens=12,
    )
    driver = Driver(engine)
    for number in (5, 1, 3, 2):
        driver.serve(prompt_of(number, 34))
    driver.submit(prompt_of(0, 34), 3)
    driver.submit(prompt_of(3, 34), 4)
    driver.submit(prompt_of(4, 22), 5)
    driver.submit(prompt_of(4, 22), 2)
    return driver


def assert_nothing_leaked(driver: Driver) -> None:
    """Events and truth agree, and every slot can be had back."""
    driver.engine.check()
    assert Claims().fold(driver.events).held == truth(driver.engine)
    tree = driver.engine.tree
    tree.evict_device(tree.device.capacity)
    assert tree.device.free == tree.device.capacity
    assert tree.host is not None
    tree.evict_host(tree.host.capacity)
    assert tree.host.free == tree.host.capacity


@pytest.mark.parametrize("write_policy", WritePolicy)
@pytest.mark.parametrize("request_id", ["r5", "r6", "r7", "r8"])
def test_cancel_in_every_phase_leaks_nothing(write_policy: WritePolicy, request_id: str) -> None:
    for phase in range(NUM_PHASES):
        driver = busy_driver(write_policy)
        for _ in range(phase):
            driver.advance()
        is_alive = not any(o.request_id == request_id and o.finish for o in driver.outputs)
        assert driver.engine.cancel(request_id, driver.now) == is_alive
        num_outputs = len(driver.times(request_id))
        driver.engine.check()
        driver.run()
        assert len(driver.times(request_id)) == num_outputs
        assert driver.engine.counters.finished + driver.engine.counters.cancelled == 8
        assert_nothing_leaked(driver)


@pytest.mark.parametrize("write_policy", WritePolicy)
def test_phases_are_of_every_kind_and_reach_the_end(write_policy: WritePolicy) -> None:
    driver = busy_driver(write_policy)
    seen = Counter[str]()
    for _ in range(NUM_PHASES):
        driver.advance()
        pools = driver.engine.cache.pools()
        seen["fetching"] += pools["storage_fetches_in_flight_tokens"] > 0
        seen["waiting"] += driver.engine.num_waiting > 0
        seen["running"] += driver.engine.num_running > 0
    assert min(seen.values()) > 0
    assert driver.engine.tree.counters.loaded_back
    assert driver.engine.counters.prefill_steps > 8, "no prompt was cut"
    assert driver.engine.counters.finished == 8


def test_cancel_of_the_unknown_is_no_error() -> None:
    driver = Driver(make_engine())
    assert not driver.engine.cancel("nobody", 0.0)


def test_second_cancel_does_nothing() -> None:
    driver = Driver(make_engine())
    request_id = driver.submit(prompt_of(0, 8))
    driver.step(0.001)
    assert driver.engine.cancel(request_id, 0.001)
    assert not driver.engine.cancel(request_id, 0.001)
    driver.run()
    assert driver.engine.counters.cancelled == 1


def decoding(driver: Driver) -> None:
    """To the middle of the answer."""
    driver.step(0.025)


def prefilling(driver: Driver) -> None:
    """To the middle of the prompt's last batch."""
    driver.step(0.004)


@pytest.mark.parametrize(("go", "cached"), [(decoding, 8), (prefilling, 8)])
def test_what_was_computed_stays_cached(go: Callable[[Driver], None], cached: int) -> None:
    driver = Driver(make_engine())
    request_id = driver.submit(prompt_of(0, 10), 9)
    go(driver)
    driver.engine.cancel(request_id, driver.now)
    driver.run()
    assert driver.serve(prompt_of(0, 10)) == Usage(10, cached_device_tokens=cached)


def test_room_goes_to_the_next_at_once() -> None:
    driver = Driver(make_engine(device_tokens=32, host_tokens=None))
    first, second = driver.submit(prompt_of(0, 16), 17), driver.submit(prompt_of(1, 16), 1)
    driver.step(0.030)
    driver.engine.cancel(first, driver.now)
    driver.run()
    assert driver.times(second) == [pytest.approx(36 + 16)]
