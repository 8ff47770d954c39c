import pytest

from protocol import DEFAULT_ENGINE_MODEL, EngineModel


def test_attention_doubles_the_cost_at_its_length() -> None:
    model = EngineModel(prefill_tokens_per_s=1000, attention_doubling_tokens=500)
    assert model.prefill_s(0) == 0
    assert model.prefill_s(1, cached_tokens=0) == pytest.approx(1e-3, rel=2e-3)
    assert model.prefill_s(100, cached_tokens=450) == pytest.approx(0.1 * 2)


def test_prefill_in_two_parts_costs_as_much_as_in_one() -> None:
    model = DEFAULT_ENGINE_MODEL
    whole = model.prefill_s(6000, 1000)
    assert model.prefill_s(2000, 1000) + model.prefill_s(4000, 3000) == pytest.approx(whole)


def test_default_rates_give_the_hit_weights() -> None:
    """A hit saves 1.0 of a block's prefill on L1, 0.8 on L2, 0.4 on L3."""
    model = DEFAULT_ENGINE_MODEL
    prefill = 64 / model.prefill_tokens_per_s
    assert 1 - model.load_back_s(64) / prefill == pytest.approx(0.8)
    assert 1 - model.fetch_s(64) / prefill == pytest.approx(0.4, abs=0.01)


def test_decode_steps_grow_with_the_batch() -> None:
    model = EngineModel(decode_ms=10, decode_ms_per_request=1)
    assert [model.decode_step_s(n) for n in (0, 1, 3)] == pytest.approx([0.010, 0.010, 0.012])
