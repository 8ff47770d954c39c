"""The engine in virtual time: what takes how long, in which order, and what it refuses."""

import pytest

from protocol import AllBlocksCleared, BlockRemoved, BlockStored
from tests.worker.virtual_time import Claims, Driver, make_engine, prompt_of, truth
from worker.engine_settings import QueueFullError, RequestTooLargeError
from worker.request import EngineRequest, FinishReason, Usage
from worker.tree import CacheKey, EvictionPolicy, WritePolicy


def shape(driver: Driver) -> list[list[str]]:
    """Every flush as names, media and number of blocks."""
    names = []
    for flush in driver.flushes:
        row = []
        for event in flush.events:
            match event:
                case BlockStored():
                    row.append(f"+{event.medium}:{len(event.block_hashes)}")
                case BlockRemoved():
                    row.append(f"-{event.medium}:{len(event.block_hashes)}")
                case AllBlocksCleared():
                    row.append("clear")
        names.append(row)
    return names


def test_first_batch_of_a_fresh_engine_clears() -> None:
    driver = Driver(make_engine())
    driver.run()
    assert shape(driver) == [["clear"]]


def test_prefill_then_decode_steps() -> None:
    driver = Driver(make_engine())
    request_id = driver.submit(prompt_of(0, 10), 3)
    driver.run()
    assert driver.times(request_id) == [10.0, 20.0, 30.0]
    assert [o.finish for o in driver.outputs] == [None, None, FinishReason.LENGTH]
    assert driver.usage(request_id) == Usage(10)


def test_late_caller_loses_nothing() -> None:
    prompt, late = prompt_of(0, 10), Driver(make_engine())
    driver = Driver(make_engine())
    driver.submit(prompt, 3)
    driver.run()
    late.submit(prompt, 3)
    late.step(5.0)
    assert late.outputs == driver.outputs
    assert late.flushes == driver.flushes


def test_equal_prompts_get_equal_answers_of_the_length_asked_for() -> None:
    driver = Driver(make_engine())
    first, second = driver.submit(prompt_of(0, 8), 5), driver.submit(prompt_of(0, 8), 5)
    driver.run()
    answers = [[o.token_id for o in driver.outputs if o.request_id == r] for r in (first, second)]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 5


def test_prefill_delays_running_answers() -> None:
    driver = Driver(make_engine())
    running = driver.submit(prompt_of(0, 8), 4)
    driver.step(0.010)
    late = driver.submit(prompt_of(1, 20), 1)
    driver.run()
    assert driver.times(late) == [38.0]  # the decode step in progress ends at 18, prefill takes 20
    assert driver.times(running) == [8.0, 18.0, 48.0, 58.0]


def test_decode_step_grows_with_the_batch() -> None:
    driver = Driver(make_engine())
    first, second = driver.submit(prompt_of(0, 8), 2), driver.submit(prompt_of(1, 8), 2)
    driver.run()
    assert driver.times(first) == driver.times(second) == [16.0, 27.0]


def test_long_prompt_is_cut_between_pages_and_cached_chunk_by_chunk() -> None:
    driver = Driver(make_engine(chunk_tokens=10))
    request_id = driver.submit(prompt_of(0, 20))
    driver.run()
    assert driver.times(request_id) == [20.0]
    assert [round(flush.at * 1e3) for flush in driver.flushes][:3] == [8, 16, 20]
    assert shape(driver)[:3] == [["clear", "+GPU:2"], ["+GPU:2"], ["+CPU_PINNED:2", "+GPU:1"]]


def test_repeated_prompt_hits_all_but_one_token() -> None:
    driver = Driver(make_engine())
    driver.serve(prompt_of(0, 16))
    assert driver.serve(prompt_of(0, 16)) == Usage(16, cached_device_tokens=12)
    assert driver.serve(prompt_of(0, 17)) == Usage(17, cached_device_tokens=16)


def test_answer_is_cached_but_for_its_last_token() -> None:
    driver = Driver(make_engine())
    driver.serve(prompt_of(0, 4), 5)
    answer = [output.token_id for output in driver.outputs]
    assert driver.serve([*prompt_of(0, 4), *answer, 1, 2]).cached_device_tokens == 8
    driver.serve(prompt_of(1, 4), 4)
    answer = [output.token_id for output in driver.outputs[-4:]]
    assert driver.serve([*prompt_of(1, 4), *answer, 1, 2]).cached_device_tokens == 4


def test_events_flush_after_prefill_every_n_decode_steps_and_on_idle() -> None:
    driver = Driver(make_engine(host_tokens=None, decode_log_interval=5))
    driver.submit(prompt_of(0, 8), 12)
    driver.submit(prompt_of(1, 8), 2)
    driver.run()
    assert shape(driver) == [["clear", "+GPU:2", "+GPU:2"], ["+GPU:2"]]
    assert [round(flush.at * 1e3) for flush in driver.flushes] == [16, 127]


def test_a_prefill_batch_flushes_in_the_midst_of_decode_steps() -> None:
    driver = Driver(make_engine(host_tokens=None))
    driver.submit(prompt_of(0, 8), 12)
    driver.step(0.030)
    late = driver.submit(prompt_of(1, 8), 3)
    driver.run()
    assert [round(flush.at * 1e3) for flush in driver.flushes][:2] == [8, driver.times(late)[0]]
    assert shape(driver)[1] == ["+GPU:2"]


def test_events_of_a_running_batch_wait_for_the_interval() -> None:
    driver = Driver(make_engine(host_tokens=None, decode_log_interval=5))
    driver.submit(prompt_of(0, 8), 20)
    driver.submit(prompt_of(1, 7), 2)  # its second page fills at the first decode step
    driver.run()
    times = [round(flush.at * 1e3) for flush in driver.flushes]
    assert shape(driver)[1] == ["+GPU:1"]
    assert times[1] == 15 + 11 + 4 * 10


def test_backup_is_acknowledged_when_the_copy_is_complete() -> None:
    driver = Driver(make_engine())
    driver.submit(prompt_of(0, 8), 3)
    driver.step(0.0)
    driver.step(0.008)
    assert truth(driver.engine)["CPU_PINNED"] == set()
    assert len(driver.engine.tree.residency().host_in_flight) == 2
    driver.run()
    assert len(truth(driver.engine)["CPU_PINNED"]) == 2
    assert Claims().fold(driver.events).held == truth(driver.engine)


def test_copies_to_host_use_one_link_in_order() -> None:
    driver = Driver(make_engine())
    for number in (0, 1):
        driver.submit(prompt_of(number, 8))
    on_host = []
    for now_ms in (17, 19, 21):  # both prompts are computed at 16, and a copy takes 2
        driver.step(now_ms / 1e3)
        on_host.append(len(truth(driver.engine)["CPU_PINNED"]))
    assert on_host == [0, 2, 4]


def test_selective_write_through_copies_what_a_second_request_hits() -> None:
    driver = Driver(make_engine(write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE, chunk_tokens=8))
    driver.serve(prompt_of(0, 20), 6)
    assert truth(driver.engine)["CPU_PINNED"] == set()
    driver.serve(prompt_of(0, 20), 6)
    assert truth(driver.engine)["CPU_PINNED"] == truth(driver.engine)["GPU"]


@pytest.mark.parametrize(
    ("policy", "kept"), [(EvictionPolicy.LRU, [0, 8]), (EvictionPolicy.PRIORITY, [8, 0])]
)
def test_pages_of_a_request_with_priority_stay(policy: EvictionPolicy, kept: list[int]) -> None:
    driver = Driver(make_engine(device_tokens=32, host_tokens=None, eviction_policy=policy))
    for number, priority in ((0, 5), (1, 1)):
        request = EngineRequest(f"p{number}", tuple(prompt_of(number, 9)), 1, priority=priority)
        driver.engine.submit(request, driver.now)
        driver.run()
    driver.serve(prompt_of(2, 17))
    matches = [driver.engine.tree.match(CacheKey(tuple(prompt_of(n, 9)))) for n in (0, 1)]
    assert [match.tokens for match in matches] == kept


def test_full_pool_makes_requests_wait_in_order() -> None:
    driver = Driver(make_engine(device_tokens=32, host_tokens=None))
    ids = [driver.submit(prompt_of(n, 16), 2) for n in range(3)]
    driver.step(0.0)
    assert (driver.engine.num_running, driver.engine.num_waiting) == (1, 2)
    driver.run()
    assert [driver.times(request_id)[0] for request_id in ids] == [16.0, 42.0, 68.0]


def test_max_running_bounds_the_batch() -> None:
    driver = Driver(make_engine(max_running=1))
    ids = [driver.submit(prompt_of(n, 4), 2) for n in range(2)]
    driver.run()
    assert [driver.times(request_id) for request_id in ids] == [[4.0, 14.0], [18.0, 28.0]]


def test_queue_is_bounded() -> None:
    driver = Driver(make_engine(max_waiting=2, max_running=1))
    driver.submit(prompt_of(0, 4))
    driver.submit(prompt_of(1, 4))
    with pytest.raises(QueueFullError):
        driver.submit(prompt_of(2, 4))
    driver.run()
    assert driver.engine.counters.refused_full == 1
    assert driver.engine.counters.finished == 2


def test_request_that_can_never_fit_is_refused() -> None:
    driver = Driver(make_engine(device_tokens=34))
    with pytest.raises(RequestTooLargeError, match="36 tokens"):
        driver.submit(prompt_of(0, 30), 4)
    driver.serve(prompt_of(0, 30), 3)
    assert driver.engine.counters.refused_large == 1


def test_id_in_use_is_refused() -> None:
    driver = Driver(make_engine())
    driver.submit(prompt_of(0, 4))
    with pytest.raises(ValueError, match="r1"):
        driver.engine.submit(EngineRequest("r1", (1,), 1), 0.0)


@pytest.mark.parametrize(("prompt", "length"), [((), 1), ((1,), 0)])
def test_empty_requests_are_refused(prompt: tuple[int, ...], length: int) -> None:
    with pytest.raises(ValueError, match=r"empty|at least"):
        EngineRequest("r", prompt, length)


def test_flush_cache_announces_and_empties() -> None:
    driver = Driver(make_engine())
    driver.serve(prompt_of(0, 16), 2)
    assert driver.engine.flush_cache(driver.now)
    driver.run()
    assert shape(driver)[-1] == ["clear"]
    assert truth(driver.engine) == {"GPU": set(), "CPU_PINNED": set()}
    assert driver.serve(prompt_of(0, 16)) == Usage(16)


def test_flush_cache_is_refused_while_there_are_requests() -> None:
    driver = Driver(make_engine())
    driver.submit(prompt_of(0, 16), 2)
    assert not driver.engine.flush_cache(driver.now)
    driver.run()
    assert shape(driver)[0][0] == "clear"
    assert len(shape(driver)[0]) == 2


def test_flush_cache_forgets_copies_in_flight() -> None:
    driver = Driver(make_engine())
    driver.submit(prompt_of(0, 32))
    driver.step(0.032)
    assert not driver.engine.is_idle
    assert driver.engine.flush_cache(driver.now)
    driver.run()
    assert truth(driver.engine) == {"GPU": set(), "CPU_PINNED": set()}


def test_salts_do_not_share() -> None:
    driver = Driver(make_engine())
    driver.serve(prompt_of(0, 16))
    salted = EngineRequest("salted", tuple(prompt_of(0, 16)), 1, cache_salt="s")
    driver.engine.submit(salted, driver.now)
    driver.run()
    assert driver.usage("salted") == Usage(16)
