"""Ranks that are heard from the middle on: silent refills are found there, too, and healthy engines are not
suspected, whatever they held from the time before. Whole engines in virtual time.
"""

import random

import pytest

from indexer.trust import Trust
from tests.simulation.engine_fleet import Ask, EngineFleet, prompts_of
from tests.simulation.test_silent_refills import AnyFleet, engine
from worker.storage import MemoryStorage

HOST = "host_stores_unannounced"


def late_fleet(*, announces: bool, reports: bool, seed: int) -> tuple[EngineFleet, list[Ask]]:
    """One worker whose GPU, host and storage are full of prompts before anybody listens."""
    storage = MemoryStorage()
    engines = {"w": engine(storage, 320, 480, announces=announces)}
    prompts = [Ask(prompt, 8) for prompt in prompts_of(12, tokens=130)]
    early = EngineFleet(engines, seed=seed)
    for ask in [*prompts, *prompts]:
        early.serve("w", ask)
    return EngineFleet(engines, seed=seed, reports=reports, before=early), prompts


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("announces", [True, False])
def test_silent_refills_of_a_rank_joined_late(seed: int, *, announces: bool, reports: bool) -> None:
    fleet, prompts = late_fleet(announces=announces, reports=reports, seed=seed)
    rng = random.Random(seed)
    for _ in range(5):
        for ask in rng.sample(prompts, k=len(prompts)):
            fleet.serve("w", ask)
    (state,) = fleet.index.rank_states(fleet.now)
    assert state.trust is Trust.JOINED
    fleet.wait(3.0)
    assert fleet.findings().keys() == ({"replay_off"} if announces else {"replay_off", HOST})


@pytest.mark.parametrize("seed", range(100, 112))
def test_engines_that_announce_everything_are_never_suspected(seed: int) -> None:
    """Namespaces whose hashes collide, cancellations, small pools, all write policies."""
    early = AnyFleet(seed)
    early.run(30)
    late = EngineFleet(early.fleet.engines, seed=seed, lag_s=early.fleet.lag_s, before=early.fleet)
    early.fleet = late
    early.run(60)
    assert late.found is None
