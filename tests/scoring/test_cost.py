"""The cost of one prompt on one rank, against numbers worked out by hand and against its laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.match import RankMatch
from indexer.trust import Trust
from protocol import DEFAULT_ENGINE_MODEL
from scoring.cost import NO_HIT, Hit, Price, price, prompt_cost, usable_hit
from scoring.rates import CostRates, RateTable
from tests.scoring.fleet import rank

RATES = RateTable().rates(rank("w").worker)


def match(
    gpu: int = 0,
    host: int = 0,
    storage: int = 0,
    predicted: int = 0,
    *,
    trust: Trust = Trust.EXACT,
    block_size: int = 64,
) -> RankMatch:
    return RankMatch(trust, block_size, gpu, host, storage, predicted)


def priced(
    prompt_tokens: int,
    hit: Hit = NO_HIT,
    rates: CostRates = RATES,
    *,
    queued_work: int = 0,
    in_flight: int = 0,
) -> Price:
    """A prompt on a rank that is busy with this."""
    own = prompt_cost(rates, prompt_tokens, hit)
    return price(rates, own, queued_work=queued_work, in_flight=in_flight)


def cost_ms(prompt_tokens: int, hit: Hit = NO_HIT, rates: CostRates = RATES) -> float:
    return priced(prompt_tokens, hit, rates).cost_ms


def test_the_documented_example() -> None:
    hit = usable_hit(match(gpu=96, host=32), 12_035)
    found = priced(12_035, hit, queued_work=2_048, in_flight=3)
    assert found.queue_ms == pytest.approx(256.0)
    assert found.prompt.prefill_ms == pytest.approx(572.0, abs=0.1)
    assert found.prompt.load_back_ms == pytest.approx(51.2)
    assert found.prompt.fetch_ms == 0
    assert found.decode_ms == pytest.approx(12.0)
    assert found.cost_ms == pytest.approx(891.2, abs=0.1)
    assert found.prompt.uncached_tokens == 12_035 - 8_192


@pytest.mark.parametrize(
    ("hit", "weight"),
    [(Hit(64, 0, 0), 1.0), (Hit(0, 64, 0), 0.8), (Hit(0, 0, 6_400), 0.4)],
)
def test_hit_weights_emerge_from_the_default_rates(hit: Hit, weight: float) -> None:
    """What a hit saves of the prefill of its blocks, on a prompt so short that attention is free."""
    short = CostRates(
        RATES.prefill_ms_per_token,
        1e12,
        RATES.load_back_ms_per_token,
        RATES.fetch_ms_per_token,
        RATES.decode_ms_per_request,
        {},
        {},
    )
    saved = cost_ms(10_000, NO_HIT, short) - cost_ms(10_000, hit, short)
    assert saved / (sum(hit) * short.prefill_ms_per_token) == pytest.approx(weight, abs=0.002)


def test_prefill_agrees_with_the_engine_model() -> None:
    for prompt, cached in [(100, 0), (100_000, 0), (100_000, 90_000), (53_000, 26_500)]:
        expected = DEFAULT_ENGINE_MODEL.prefill_s(prompt - cached, cached) * 1e3
        found = prompt_cost(RATES, prompt, Hit(cached, 0, 0))
        assert found.prefill_ms == pytest.approx(expected)


def test_decode_agrees_with_the_engine_model() -> None:
    """Eight tokens of the answer, each later by what the others in the batch add to a step."""
    step = DEFAULT_ENGINE_MODEL.decode_step_s
    for others in (0, 1, 20):
        expected = 8 * (step(others + 1) - step(1)) * 1e3
        found = priced(100, in_flight=others)
        assert found.decode_ms == pytest.approx(expected)


def test_a_short_answer_is_slowed_for_as_long_as_it_lasts() -> None:
    own = prompt_cost(RATES, 100, NO_HIT)
    found = price(RATES, own, queued_work=0, in_flight=10, answer_tokens=1)
    assert found.decode_ms == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("storage", "is_fetched"), [(64, False), (192, False), (256, True), (6_400, True)]
)
def test_storage_is_fetched_from_the_prefetch_threshold_on(storage: int, is_fetched: bool) -> None:
    found = priced(10_000, Hit(0, 0, storage))
    assert (found.prompt.fetch_ms > 0) is is_fetched
    assert found.prompt.hit.storage == (storage if is_fetched else 0)
    assert found.prompt.uncached_tokens == (10_000 - storage if is_fetched else 10_000)


@pytest.mark.parametrize(("threshold", "is_fetched"), [(0, True), (64, True), (65, False)])
def test_the_threshold_is_the_workers(threshold: int, is_fetched: bool) -> None:
    own = prompt_cost(RATES, 10_000, Hit(0, 0, 64), threshold)
    assert (own.fetch_ms > 0) is is_fetched


def test_storage_slower_than_prefill_is_left_alone() -> None:
    slow = CostRates(0.125, 53_000.0, 0.025, 10.0, 0.5, {}, {})
    assert cost_ms(10_000, Hit(0, 0, 6_400), slow) == cost_ms(10_000, NO_HIT, slow)


@pytest.mark.parametrize(
    ("found", "prompt_tokens", "expected"),
    [
        (match(), 1_000, Hit(0, 0, 0)),
        (match(gpu=2), 128, Hit(64, 0, 0)),  # the last block is computed again
        (match(gpu=2), 129, Hit(128, 0, 0)),
        (match(gpu=1, host=1, storage=1), 192, Hit(64, 64, 0)),
        (match(gpu=1, host=1), 128, Hit(64, 0, 0)),
        (match(gpu=1, predicted=1), 128, Hit(64, 0, 0)),
        (match(gpu=1, storage=1, predicted=1), 192, Hit(64, 0, 64)),
        (match(gpu=3, predicted=2), 1_000, Hit(320, 0, 0)),
        (match(gpu=1, block_size=1), 1, Hit(0, 0, 0)),
        (match(gpu=9, block_size=1), 10, Hit(9, 0, 0)),
        (match(gpu=4, host=2, trust=Trust.DEGRADED), 1_000, Hit(128, 64, 0)),
        (match(gpu=4, host=2, trust=Trust.STALE), 1_000, Hit(128, 64, 0)),
        (match(gpu=4, predicted=4, trust=Trust.DEGRADED), 1_000, Hit(384, 0, 0)),
        (match(gpu=4, trust=Trust.JOINED), 1_000, Hit(256, 0, 0)),
        (match(gpu=4, trust=Trust.NONE), 1_000, Hit(256, 0, 0)),
        (match(gpu=4), 0, Hit(0, 0, 0)),
    ],
)
def test_what_of_a_match_is_usable(found: RankMatch, prompt_tokens: int, expected: Hit) -> None:
    assert usable_hit(found, prompt_tokens) == expected


matches = st.builds(
    match,
    gpu=st.integers(0, 40),
    host=st.integers(0, 40),
    storage=st.integers(0, 40),
    predicted=st.integers(0, 40),
    trust=st.sampled_from(Trust),
    block_size=st.sampled_from([1, 16, 64, 256]),
)


@given(matches, st.integers(0, 20_000), st.integers(0, 100_000), st.integers(0, 200))
def test_terms_are_never_negative_and_sum_up(
    found: RankMatch, prompt_tokens: int, queued_work: int, in_flight: int
) -> None:
    hit = usable_hit(found, prompt_tokens)
    result = priced(prompt_tokens, hit, queued_work=queued_work, in_flight=in_flight)
    own = result.prompt
    terms = (result.queue_ms, result.decode_ms, *own[1:4])
    assert min(terms) >= 0
    assert sum(terms) == pytest.approx(result.cost_ms)
    assert min(hit) >= 0
    assert sum(hit) <= max(prompt_tokens - 1, 0)
    assert own.uncached_tokens + sum(own.hit) == pytest.approx(prompt_tokens)
    assert prompt_tokens == 0 or own.uncached_tokens >= 1


@given(st.integers(2, 400), st.integers(0, 300))
def test_a_faster_tier_never_costs_more(prompt_blocks: int, run: int) -> None:
    length = min(run, prompt_blocks - 1)
    on_gpu, on_host, in_storage, soon, cold = (
        cost_ms(prompt_blocks * 64, usable_hit(found, prompt_blocks * 64))
        for found in (
            match(gpu=length),
            match(host=length),
            match(storage=length),
            match(predicted=length),
            match(),
        )
    )
    assert on_gpu <= on_host <= in_storage <= cold
    assert soon == on_gpu
