"""The CPU tier: what is copied, how it is announced, and what a request gets back from it."""

from protocol import BlockRemoved, BlockStored, KvEvent
from tests.worker.blocks.block_life import (
    Copies,
    all_events,
    block_truth,
    make_block_engine,
    shape,
)
from tests.worker.virtual_time import Driver, prompt_of
from worker.request import Usage


def on_cpu(driver: Driver) -> list[KvEvent]:
    """Events of the CPU tier, in order."""
    return [
        event
        for event in driver.events
        if isinstance(event, BlockStored | BlockRemoved) and event.medium == "CPU"
    ]


def test_copies_are_announced_with_the_step_after_they_are_complete() -> None:
    driver = Driver(make_block_engine(offload_tokens=64))
    driver.serve(prompt_of(0, 10))
    assert shape(driver) == ["+GPU:2"]
    driver.serve(prompt_of(1, 3))
    assert shape(driver) == ["+GPU:2", "+CPU:1 +CPU:1"]


def test_a_copy_is_announced_as_a_placeholder_of_its_last_block() -> None:
    driver = Driver(make_block_engine(offload_tokens=64, offload_blocks=2))
    driver.serve(prompt_of(0, 21))
    driver.serve(prompt_of(1, 1))
    (blocks,) = [e for e in driver.events if isinstance(e, BlockStored) and e.medium == "GPU"]
    stored = [event for event in on_cpu(driver) if isinstance(event, BlockStored)]
    assert {event.block_hashes[0] for event in stored} == {*blocks.block_hashes[1:4:2]}
    for event in stored:
        assert (event.token_ids, event.block_size, event.parent_hash) == ([], 0, None)
        assert (event.group_idx, event.extra_keys) == (None, None)


def test_self_describing_copies_name_tokens_and_parent_children_first() -> None:
    driver = Driver(make_block_engine(offload_tokens=64, is_self_describing=True))
    driver.serve(prompt_of(0, 12))
    driver.serve(prompt_of(1, 1))
    (blocks,) = [e for e in driver.events if isinstance(e, BlockStored) and e.medium == "GPU"]
    stored = [event for event in on_cpu(driver) if isinstance(event, BlockStored)]
    assert [event.block_hashes[0] for event in stored] == [*blocks.block_hashes][::-1]
    assert [event.parent_hash for event in stored] == [*blocks.block_hashes[1::-1], None]
    assert stored[-1].token_ids == prompt_of(0, 4)
    assert all(event.extra_keys is None and event.group_idx == 0 for event in stored)


def test_what_only_the_cpu_holds_is_loaded_back_and_announced() -> None:
    driver = Driver(make_block_engine(num_blocks=8, offload_tokens=128))
    driver.serve(prompt_of(0, 18))
    driver.serve(prompt_of(1, 30))
    before = len(shape(driver))
    assert driver.serve(prompt_of(0, 18)) == Usage(18, 0, cached_host_tokens=16)
    assert "+GPU:4" in shape(driver)[before]
    assert Copies().fold(all_events(driver)).hashes() == block_truth(driver.engine)


def test_a_load_takes_its_time() -> None:
    driver = Driver(make_block_engine(num_blocks=8, offload_tokens=128))
    driver.serve(prompt_of(0, 18))
    driver.serve(prompt_of(1, 30))
    started = driver.now
    request_id = driver.submit(prompt_of(0, 18))
    driver.run()
    (first,) = driver.times(request_id)
    assert round(first - started * 1e3, 6) == 16 * 0.25 + 2


def test_the_longest_unused_goes_tail_first_in_one_event() -> None:
    driver = Driver(make_block_engine(offload_tokens=16, is_self_describing=True))
    driver.serve(prompt_of(0, 13))
    driver.serve(prompt_of(1, 9))
    driver.serve(prompt_of(2, 1))
    (blocks,) = [
        e for e in driver.events
        if isinstance(e, BlockStored) and e.medium == "GPU" and e.token_ids[0] == prompt_of(0, 1)[0]
    ]  # fmt: skip
    (removed,) = [event for event in on_cpu(driver) if isinstance(event, BlockRemoved)]
    assert removed.block_hashes == [blocks.block_hashes[2]]


def test_a_clear_may_leave_the_cpu_tier() -> None:
    driver = Driver(make_block_engine(offload_tokens=64))
    driver.serve(prompt_of(0, 10))
    driver.run()
    driver.engine.flush_cache(driver.now, keeps_host=True)
    assert not block_truth(driver.engine)["GPU"]
    assert block_truth(driver.engine)["CPU"]
    assert driver.serve(prompt_of(0, 10)) == Usage(10, 0, cached_host_tokens=8)
    driver.run()
    driver.engine.flush_cache(driver.now)
    assert not block_truth(driver.engine)["CPU"]


def test_more_than_the_cpu_holds_is_refused_and_counted() -> None:
    driver = Driver(make_block_engine(offload_tokens=8))
    driver.serve(prompt_of(0, 20))
    assert driver.engine.cache.counters()["copies_refused"] == 3
