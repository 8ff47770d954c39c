"""Answers that outgrow the pool: who yields, what it costs, and that every request ends with its tokens."""

from itertools import islice, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import BlockStored
from tests.worker.virtual_time import SAMPLER, Claims, Driver, make_engine, prompt_of, truth
from worker.request import Usage


def answer_of(driver: Driver, request_id: str) -> list[int]:
    """Tokens that came out for a request, in order."""
    return [o.token_id for o in driver.outputs if o.request_id == request_id]


def expected(prompt: list[int], length: int) -> list[int]:
    """What the sampler says to a prompt."""
    return list(islice(SAMPLER.answer(tuple(prompt)), length))


def outgrown() -> tuple[Driver, str, str]:
    """Two answers that were admitted though the pool does not hold both to their end."""
    driver = Driver(make_engine(device_tokens=88, host_tokens=None))
    first = driver.submit(prompt_of(0, 8), 40)
    driver.step(0.010)
    second = driver.submit(prompt_of(1, 8), 40)
    driver.step(0.020)
    assert driver.engine.num_running == 2
    driver.run()
    assert driver.engine.counters.preempted == 1
    return driver, first, second


def test_answers_are_admitted_against_a_share_of_their_length() -> None:
    driver = Driver(make_engine(device_tokens=84, host_tokens=None))
    driver.submit(prompt_of(0, 8), 40)
    driver.step(0.010)
    driver.submit(prompt_of(1, 8), 40)
    driver.step(0.020)
    assert driver.engine.num_running == 1  # 12 held, 48 needed, 0.7 of 39 expected
    driver.run()
    assert driver.engine.counters.preempted == 0


def test_fewest_tokens_yield() -> None:
    driver, first, second = outgrown()
    assert max(gap(driver, first)) < 30.0
    assert max(gap(driver, second)) > 30.0
    for number, request_id in enumerate((first, second)):
        assert answer_of(driver, request_id) == expected(prompt_of(number, 8), 40)


def test_one_that_yielded_goes_on_before_those_that_wait() -> None:
    driver = Driver(make_engine(device_tokens=88, host_tokens=None))
    first = driver.submit(prompt_of(0, 8), 40)
    driver.step(0.010)
    second = driver.submit(prompt_of(1, 8), 40)
    driver.step(0.020)
    third = driver.submit(prompt_of(2, 8), 40)
    driver.run()
    assert driver.engine.counters.preempted == 1
    resumed = next(now for now in driver.times(second) if now > driver.times(first)[-1])
    assert resumed < driver.times(third)[0]


def gap(driver: Driver, request_id: str) -> list[float]:
    """Milliseconds between the tokens of an answer."""
    times = driver.times(request_id)
    return [later - earlier for earlier, later in pairwise(times)]


def test_prompt_of_a_retracted_request_stays_cached_and_its_usage_is_the_first() -> None:
    driver, _, second = outgrown()
    counters = driver.engine.counters
    assert driver.usage(second) == Usage(8)
    assert sum(o.usage is not None for o in driver.outputs if o.request_id == second) == 1
    assert counters.prompt_tokens == 16
    again = counters.prefilled_tokens - 16
    assert 0 < again < 8 + 40, "the prompt's pages are hit, the answer so far is computed again"


def test_nothing_of_a_retraction_is_announced() -> None:
    driver, _, _ = outgrown()
    stored = [h for e in driver.events if isinstance(e, BlockStored) for h in e.block_hashes]
    assert len(stored) == len(set(stored))
    claims = Claims().fold(driver.events)
    assert claims.held == truth(driver.engine)
    assert not claims.unknown_removals


def run_folding(driver: Driver) -> None:
    """Run until idle; after every step, what was announced or waits to be is what is held."""
    claims, num_seen, goes_on = Claims(), 0, True
    while goes_on:
        flushed = [event for flush in driver.flushes[num_seen:] for event in flush.events]
        num_seen = len(driver.flushes)
        claims.fold([*flushed, *driver.engine.cache.take_events()])
        assert claims.held == truth(driver.engine)
        assert not claims.unknown_removals
        goes_on = driver.advance()


LOADS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(1, 24), st.floats(0, 40)),
    min_size=1,
    max_size=10,
)


@given(
    loads=LOADS,
    page_size=st.sampled_from([1, 4]),
    spare=st.integers(0, 24),
    host_tokens=st.sampled_from([None, 8, 64]),
    chunk_tokens=st.sampled_from([4, 8_192]),
    decode_log_interval=st.sampled_from([1, 7]),
)
@settings(max_examples=120, deadline=None)
def test_every_request_ends_with_its_tokens(
    loads: list[tuple[int, int, int, float]],
    page_size: int,
    spare: int,
    host_tokens: int | None,
    chunk_tokens: int,
    decode_log_interval: int,
) -> None:
    """In a pool that hardly holds the largest of them alone."""
    largest = max(length + answer for _, length, answer, _ in loads)
    driver = Driver(
        make_engine(
            page_size=page_size,
            device_tokens=largest + page_size + spare,
            host_tokens=host_tokens,
            chunk_tokens=chunk_tokens,
            decode_log_interval=decode_log_interval,
        )
    )
    asked = {}
    for family, length, answer, wait_ms in loads:
        prompt = prompt_of(family, length)
        asked[driver.submit(prompt, answer)] = expected(prompt, answer)
        driver.step(driver.now + wait_ms / 1e3)
    run_folding(driver)
    assert {request_id: answer_of(driver, request_id) for request_id in asked} == asked
    tree = driver.engine.tree
    assert not tree.device.held - len(tree.residency().device) * page_size
