"""Engines whose host memory only stages: known by their GPU blocks, never taken for silent ones. In virtual time."""

import random

import pytest

from indexer import Prompt
from protocol import Tier, pack_tokens
from tests.simulation.engine_fleet import MODEL_NAME, Ask, EngineFleet, prompts_of, rank_of
from tests.simulation.test_silent_refills import KINDS, PAGE, Traffic
from tests.worker.virtual_time import make_engine, truth
from worker.engine import Engine
from worker.prefetch import PrefetchLimits, PrefetchPolicy
from worker.storage import MemoryStorage
from worker.tree import HostMode

SIZES = {"small": 320, "large": 4_096, "other large": 4_096, "large host": 320}


def engine(storage: MemoryStorage, device_tokens: int, *, is_eagle: bool = False) -> Engine:
    return make_engine(
        page_size=PAGE,
        device_tokens=device_tokens,
        host_tokens=480,
        storage=storage,
        prefetch=PrefetchLimits(PAGE, PrefetchPolicy.WAIT_COMPLETE),
        host_mode=HostMode.BUFFER_ONLY,
        is_eagle=is_eagle,
    )


def fleet_of(seed: int, lag_s: float, *, is_eagle: bool = False) -> EngineFleet:
    storage = MemoryStorage()
    engines = {name: engine(storage, size, is_eagle=is_eagle) for name, size in SIZES.items()}
    return EngineFleet(engines, seed=seed, lag_s=lag_s)


@pytest.mark.parametrize("traffic", KINDS)
@pytest.mark.parametrize("lag_s", [0.0, 0.5])
@pytest.mark.parametrize("is_eagle", [False, True])
def test_refills_of_storage_are_no_finding(traffic: Traffic, lag_s: float, is_eagle: bool) -> None:
    for seed in range(3):
        fleet = fleet_of(seed, lag_s, is_eagle=is_eagle)
        traffic(fleet, random.Random(seed))
        fleet.run()
        assert fleet.num_refilled
        assert fleet.findings() == {}
        states = {state.rank: state for state in fleet.index.rank_states(fleet.now)}
        for name, one in fleet.engines.items():
            state = states[rank_of(name)]
            assert state.trust == "exact"
            assert state.blocks.get(Tier.GPU, 0) == len(truth(one)["GPU"])
            assert not state.blocks.get(Tier.HOST)


def test_what_is_on_gpu_is_credited_and_what_is_in_storage_is_not() -> None:
    fleet = fleet_of(0, 0.0)
    first, second, third = prompts_of(3, tokens=161)
    for prompt in (first, second, third):
        fleet.serve("small", Ask(prompt))
    assert [credited(fleet, prompt) for prompt in (first, third)] == [(0, 0), (10, 0)]
    assert fleet.serve("small", Ask(first)).cached_storage_tokens == 160
    assert credited(fleet, first) == (10, 0)


def credited(fleet: EngineFleet, prompt: tuple[int, ...]) -> tuple[int, int]:
    """Blocks on GPU, and beyond it, that the small engine is known to hold."""
    asked = Prompt(pack_tokens(list(prompt)), MODEL_NAME)
    (match,) = fleet.index.match(asked, [rank_of("small")], fleet.now)
    return match.gpu_blocks, match.host_pinned_blocks + match.storage_blocks
