"""Rates: configured before learned before default, and the record of which it was."""

from dataclasses import replace

import pytest

from protocol import DEFAULT_ENGINE_MODEL, EngineModel, WorkerId
from scoring.rates import RateName, RateTable, configured_rates, with_hit_weights
from scoring.speeds import MIN_SAMPLES

W = WorkerId("w")


def taught(table: RateTable, speed: float) -> RateTable:
    table.speeds.add(W, "m")
    for _ in range(MIN_SAMPLES):
        table.speeds.learn(W, 1_000.0 * speed, 1_000.0)
    return table


def test_default_rates() -> None:
    rates = RateTable().rates(W)
    assert rates.prefill_ms_per_token == 0.125
    assert rates.load_back_ms_per_token == 0.025
    assert rates.fetch_ms_per_token == pytest.approx(1 / 13.3)
    assert set(rates.sources.values()) == {"default"}
    assert rates.values["prefill"] == 8_000


def test_a_learned_speed_scales_every_rate_alike() -> None:
    usual, fast = RateTable().rates(W), taught(RateTable(), 2.0).rates(W)
    assert set(fast.sources.values()) == {"learned"}
    for name in ("prefill_ms_per_token", "load_back_ms_per_token", "fetch_ms_per_token"):
        assert getattr(fast, name) == pytest.approx(getattr(usual, name) / 2)
    assert fast.decode_ms_per_request == pytest.approx(usual.decode_ms_per_request / 2)
    assert fast.values["prefill"] == pytest.approx(16_000)


def test_what_is_configured_is_not_learned_over() -> None:
    model = replace(DEFAULT_ENGINE_MODEL, load_back_tokens_per_s=50_000.0)
    rates = taught(RateTable(model), 2.0).rates(W)
    assert rates.load_back_ms_per_token == pytest.approx(0.02)
    assert rates.sources == {
        "prefill": "learned",
        "load_back": "configured",
        "fetch": "learned",
        "decode": "learned",
    }


def test_a_configured_prefill_rate_switches_learning_off() -> None:
    table = taught(RateTable(DEFAULT_ENGINE_MODEL, {RateName.PREFILL}), 2.0)
    rates = table.rates(W)
    assert rates.prefill_ms_per_token == 0.125
    assert rates.sources["prefill"] == "configured"
    assert rates.sources["fetch"] == "default"


def test_rates_that_depart_from_the_default_count_as_configured() -> None:
    assert configured_rates(DEFAULT_ENGINE_MODEL) == set()
    assert configured_rates(EngineModel(prefill_tokens_per_s=1.0, decode_ms_per_request=9.0)) == {
        RateName.PREFILL,
        RateName.DECODE,
    }


def test_hit_weights_become_rates() -> None:
    model = with_hit_weights(DEFAULT_ENGINE_MODEL, host=0.8, storage=0.4)
    assert model.load_back_tokens_per_s == pytest.approx(40_000)
    assert model.fetch_tokens_per_s == pytest.approx(13_333, abs=1)
    assert with_hit_weights(DEFAULT_ENGINE_MODEL) == DEFAULT_ENGINE_MODEL


@pytest.mark.parametrize("weight", [-0.1, 1.0, 2.0])
def test_a_hit_weight_is_a_share(weight: float) -> None:
    with pytest.raises(ValueError, match="hit weight"):
        with_hit_weights(DEFAULT_ENGINE_MODEL, host=weight)


def test_the_table_of_rates_by_speed_is_bounded() -> None:
    table = RateTable()
    for number in range(3_000):
        worker = WorkerId(f"w{number % 7}")
        table.speeds.add(worker, f"m{number}")
        for _ in range(MIN_SAMPLES):
            table.speeds.learn(worker, 1_000.0 + number, 1_000.0)
        table.rates(worker)
    assert len(table._by_speed) <= 1_024
