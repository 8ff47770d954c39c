"""The vLLM flavour in virtual time: what is announced when, who yields, and that nothing is lost."""

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import BlockRemoved, BlockStored
from tests.worker.blocks.block_life import (
    Copies,
    all_events,
    block_truth,
    make_block_engine,
    shape,
)
from tests.worker.virtual_time import SAMPLER, Driver, prompt_of
from worker.engine_settings import RequestTooLargeError
from worker.request import EngineRequest, Usage


def test_a_fresh_engine_says_nothing_and_is_idle() -> None:
    driver = Driver(make_block_engine())
    driver.run()
    assert shape(driver) == []


def test_full_blocks_of_prompt_and_answer_are_announced_step_by_step() -> None:
    driver = Driver(make_block_engine())
    request_id = driver.submit(prompt_of(0, 10), 8)
    driver.run()
    assert shape(driver) == ["+GPU:2", "+GPU:1", "+GPU:1"]
    events = [event for event in driver.events if isinstance(event, BlockStored)]
    assert events[0].parent_hash is None
    assert events[1].parent_hash == events[0].block_hashes[-1]
    assert events[2].parent_hash == events[1].block_hashes[-1]
    answer = [o.token_id for o in driver.outputs if o.request_id == request_id]
    assert [t for e in events for t in e.token_ids] == [*prompt_of(0, 10), *answer][:16]


@pytest.mark.parametrize(
    ("length", "cached", "announced"), [(10, 8, []), (8, 4, ["+GPU:1"]), (3, 0, [])]
)
def test_a_hit_leaves_one_token_to_be_computed(
    length: int, cached: int, announced: list[str]
) -> None:
    driver = Driver(make_block_engine())
    assert driver.serve(prompt_of(0, length)) == Usage(length)
    before = len(shape(driver))
    assert driver.serve(prompt_of(0, length)) == Usage(length, cached_device_tokens=cached)
    assert shape(driver)[before:] == announced


def test_each_copy_of_a_block_is_removed_on_its_own() -> None:
    driver = Driver(make_block_engine(num_blocks=4))
    for _ in range(2):
        driver.serve(prompt_of(0, 8))
    driver.serve(prompt_of(1, 16))
    removed = [e.block_hashes[0] for e in driver.events if isinstance(e, BlockRemoved)]
    assert len(removed) == 3
    assert len(set(removed)) == 2
    assert Copies().fold(all_events(driver)).hashes() == block_truth(driver.engine)


def test_the_tail_of_a_prompt_is_evicted_before_its_head() -> None:
    driver = Driver(make_block_engine(num_blocks=6))
    driver.serve(prompt_of(0, 12))
    (stored,) = [event for event in driver.events if isinstance(event, BlockStored)]
    driver.serve(prompt_of(1, 20))
    removed = [e.block_hashes[0] for e in driver.events if isinstance(e, BlockRemoved)]
    assert removed == [stored.block_hashes[2], stored.block_hashes[1]]
    assert driver.serve(prompt_of(0, 12)).cached_device_tokens == 4


def test_prompts_and_answers_share_a_step() -> None:
    driver = Driver(make_block_engine())
    running = driver.submit(prompt_of(0, 8), 4)
    driver.step(0.010)
    late = driver.submit(prompt_of(1, 20), 1)
    driver.run()
    assert driver.times(late) == [
        48.0
    ]  # a decode step ends at 18; 20 of prefill and 10 of decode follow
    assert driver.times(running) == [8.0, 18.0, 48.0, 58.0]


def test_equal_prompts_of_one_batch_share_what_the_first_fills() -> None:
    driver = Driver(make_block_engine())
    first, second = driver.submit(prompt_of(0, 10), 1), driver.submit(prompt_of(0, 10), 1)
    driver.run()
    assert driver.usage(first) == Usage(10)
    assert driver.usage(second) == Usage(10, cached_device_tokens=8)
    assert shape(driver) == ["+GPU:2"]


def test_the_latest_yields_and_finds_its_blocks_again() -> None:
    driver = Driver(make_block_engine(num_blocks=10))
    first, second = driver.submit(prompt_of(0, 8), 24), driver.submit(prompt_of(1, 8), 24)
    driver.run()
    counters = driver.engine.counters
    assert counters.preempted == 1
    assert driver.times(first)[-1] < driver.times(second)[-1]
    assert driver.usage(second) == Usage(8)
    for number, request_id in enumerate((first, second)):
        answer = [o.token_id for o in driver.outputs if o.request_id == request_id]
        assert answer == list(islice(SAMPLER.answer(tuple(prompt_of(number, 8))), 24))


def test_a_prompt_that_was_cut_is_the_latest() -> None:
    driver = Driver(make_block_engine(num_blocks=8, chunk_tokens=8))
    first, second = driver.submit(prompt_of(0, 7), 20), driver.submit(prompt_of(1, 20), 2)
    driver.step(0.008)
    driver.step(0.030)
    driver.run()
    assert len(driver.times(first)) == 20
    assert len(driver.times(second)) == 2


def test_a_clear_is_announced_with_the_next_step() -> None:
    driver = Driver(make_block_engine())
    driver.serve(prompt_of(0, 8))
    assert driver.engine.flush_cache(driver.now)
    assert driver.engine.flush_cache(driver.now)
    driver.run()
    assert shape(driver) == ["+GPU:2"]
    driver.serve(prompt_of(0, 8))
    assert shape(driver)[1:] == ["clear clear +GPU:2"]


def test_clears_that_nobody_hears_are_bounded() -> None:
    driver = Driver(make_block_engine())
    for _ in range(2_000):
        driver.engine.flush_cache(0.0)
    assert driver.engine.cache.num_events == 1_024


def test_an_engine_in_the_place_of_another_says_that_it_is_empty() -> None:
    driver = Driver(make_block_engine().renewed())
    driver.serve(prompt_of(0, 8))
    assert shape(driver) == ["clear +GPU:2"]


def test_a_request_that_can_never_fit_is_refused() -> None:
    driver = Driver(make_block_engine(num_blocks=4))
    with pytest.raises(RequestTooLargeError, match="20 tokens"):
        driver.submit(prompt_of(0, 8), 10)
    driver.serve(prompt_of(0, 8), 9)


def test_salt_and_adapter_make_other_blocks() -> None:
    driver = Driver(make_block_engine())
    prompt = tuple(prompt_of(0, 12))
    for name, adapter, salt in [("r", None, None), ("a", "ad2", None), ("s", None, "x")]:
        request = EngineRequest(name, prompt, 1, extra_key=adapter, cache_salt=salt)
        driver.engine.submit(request, driver.now)
        driver.run()
        assert driver.usage(name).cached_tokens == 0
    plain, adapted, salted = [e for e in driver.events if isinstance(e, BlockStored)]
    assert (plain.lora_name, plain.lora_id, plain.extra_keys) == (None, None, [None] * 3)
    assert (adapted.lora_name, adapted.lora_id) == ("ad2", 2)
    assert adapted.extra_keys == [["ad2"]] * 3
    assert salted.extra_keys == [["x"], None, None]
    assert not {*plain.block_hashes} & {*adapted.block_hashes, *salted.block_hashes}


def run_folding(driver: Driver) -> None:
    """Run until idle; after every step, what was announced or waits to be is what is held."""
    copies, num_seen, goes_on = Copies(), 0, True
    while goes_on:
        flushed = [event for flush in driver.flushes[num_seen:] for event in flush.events]
        num_seen = len(driver.flushes)
        copies.fold([*flushed, *driver.engine.cache.take_events()])
        assert copies.hashes() == block_truth(driver.engine)
        goes_on = driver.advance()


LOADS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(1, 24), st.floats(0, 40)),
    min_size=1,
    max_size=10,
)


@given(
    loads=LOADS,
    block_size=st.sampled_from([1, 4]),
    spare=st.integers(0, 6),
    offload=st.sampled_from([(None, 1, False), (24, 1, True), (24, 2, False), (200, 1, False)]),
    chunk_tokens=st.sampled_from([4, 8_192]),
    max_running=st.sampled_from([2, 64]),
    cancelled=st.sets(st.integers(1, 10), max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_every_request_ends_with_its_tokens(
    loads: list[tuple[int, int, int, float]],
    block_size: int,
    spare: int,
    offload: tuple[int | None, int, bool],
    chunk_tokens: int,
    max_running: int,
    cancelled: set[int],
) -> None:
    """In a pool that hardly holds the largest of them alone."""
    largest = max(-(-(length + answer) // block_size) for _, length, answer, _ in loads)
    engine = make_block_engine(
        block_size=block_size,
        num_blocks=largest + spare,
        offload_tokens=offload[0],
        offload_blocks=offload[1],
        is_self_describing=offload[2],
        chunk_tokens=chunk_tokens,
        max_running=max_running,
    )
    driver = Driver(engine)
    asked = {}
    for family, length, answer, wait_ms in loads:
        prompt = prompt_of(family, length)
        asked[driver.submit(prompt, answer)] = list(islice(SAMPLER.answer(tuple(prompt)), answer))
        driver.step(driver.now + wait_ms / 1e3)
    gone = {f"r{n}" for n in cancelled if engine.cancel(f"r{n}", driver.now)}
    engine.check()
    run_folding(driver)
    for request_id, tokens in asked.items():
        told = [o.token_id for o in driver.outputs if o.request_id == request_id]
        assert told == (tokens[: len(told)] if request_id in gone else tokens)
    pools = engine.cache.pools()
    assert pools["gpu_free"] == pools["gpu_capacity"]
    assert engine.cache.usage == 0.0
