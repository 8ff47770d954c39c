"""Caches that are lost without an event are noticed after three requests; healthy engines are never
suspected of it. Whole engines in virtual time, events as bytes.
"""

import random

import pytest

from tests.simulation.engine_fleet import Ask, EngineFleet, prompts_of
from tests.simulation.test_silent_refills import AnyFleet
from tests.worker.virtual_time import make_engine
from worker.engine import Engine

CLEAR = "clears_missing"
PAGE = 16


def engine(chunk_tokens: int = 8_192) -> Engine:
    return make_engine(
        page_size=PAGE,
        device_tokens=16_384,
        host_tokens=16_384,
        chunk_tokens=chunk_tokens,
    )


def clear_silently(fleet: EngineFleet, name: str) -> None:
    """The engine forgets everything and says nothing of it."""
    one = fleet.engines[name]
    assert one.flush_cache(fleet.now)
    one.tree.take_events()


@pytest.mark.parametrize("lag_s", [0.0, 0.5])
@pytest.mark.parametrize("chunk_tokens", [64, 8_192])
@pytest.mark.parametrize("seed", range(2))
def test_a_silent_clear_is_noticed_after_three_requests(
    seed: int, chunk_tokens: int, lag_s: float
) -> None:
    fleet = EngineFleet({n: engine(chunk_tokens) for n in ("w", "v")}, seed=seed, lag_s=lag_s)
    prompts = prompts_of(12, tokens=300)
    for _ in range(2):
        for prompt in prompts:
            fleet.serve("w", Ask(prompt, 8))
            fleet.serve("v", Ask(prompt, 8))
    fleet.wait(5.0)
    assert fleet.findings() == {}
    clear_silently(fleet, "w")
    rng = random.Random(seed)
    for number, prompt in enumerate(rng.sample(prompts, k=12), 1):
        assert fleet.serve("w", Ask(prompt, 8)).cached_tokens == 0
        assert fleet.serve("v", Ask(prompt, 8)).cached_tokens > 0
        if number == 3:
            fleet.wait(2.0)
        assert (CLEAR in fleet.findings()) is (number >= 3)
    assert fleet.findings().keys() == {CLEAR}
    v, w = fleet.index.rank_states(fleet.now)
    assert (v.purges, w.purges) == (0, 1)
    for prompt in prompts:  # known again, by events and by what was served
        fleet.serve("w", Ask(prompt, 8))
    v, w = fleet.index.rank_states(fleet.now)
    assert (w.trust, w.purges, w.contradictions) == ("joined", 1, 3)
    fleet.wait(700.0)
    assert fleet.findings() == {}


@pytest.mark.parametrize("seed", range(30, 38))
def test_healthy_engines_are_suspected_of_nothing(seed: int) -> None:
    """But where the hashes of namespaces collide: there the engine promises more than it keeps."""
    any_fleet = AnyFleet(seed)
    any_fleet.extra_keys = (None,)
    any_fleet.run(50)
    assert any_fleet.fleet.findings() == {}
    assert not any(state.purges for state in any_fleet.fleet.index.rank_states(any_fleet.fleet.now))
