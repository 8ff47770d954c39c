"""Refills into host memory that nobody announces are found, whichever blocks come back; announced ones are
never taken for them. Whole engines in virtual time, events as bytes.
"""

import random
from collections.abc import Callable
from functools import partial

import pytest

from protocol import Tier
from tests.simulation.engine_fleet import Ask, EngineFleet, prompts_of
from tests.worker.virtual_time import make_engine
from worker.engine import Engine
from worker.engine_settings import QueueFullError, RequestTooLargeError
from worker.prefetch import PrefetchLimits, PrefetchPolicy
from worker.storage import MemoryStorage
from worker.tree import WritePolicy

PAGE = 16
REQUESTS_TO_FIND = 3
"""Served from silently refilled blocks before the finding comes, at most."""


def engine(
    storage: MemoryStorage, device_tokens: int, host_tokens: int, *, announces: bool
) -> Engine:
    return make_engine(
        page_size=PAGE,
        device_tokens=device_tokens,
        host_tokens=host_tokens,
        storage=storage,
        prefetch=PrefetchLimits(PAGE, PrefetchPolicy.WAIT_COMPLETE),
        announce_refills=announces,
    )


# One worker, its own prompts


@pytest.mark.parametrize("announces", [False, True])
def test_eight_prompts_three_times_over(*, announces: bool) -> None:
    """Two of them fit on GPU, four on host: each comes back from storage, 13 blocks of 64 tokens."""
    tree = make_engine(
        page_size=64,
        device_tokens=2_048,
        host_tokens=4_096,
        storage=MemoryStorage(),
        prefetch=PrefetchLimits(),
        announce_refills=announces,
    )
    fleet = EngineFleet({"w": tree})
    prompts = prompts_of(8, tokens=860)
    for prompt in prompts:
        assert fleet.serve("w", Ask(prompt, 16)).cached_tokens == 0
    assert fleet.findings() == {}
    for _ in range(2):
        for prompt in prompts:
            assert fleet.serve("w", Ask(prompt, 16)).cached_storage_tokens == 832
    (state,) = fleet.index.rank_states(fleet.now)
    assert (state.trust, state.claimed_blocks, state.reported_blocks) == ("exact", 0, 16 * 13)
    if announces:
        assert fleet.findings() == {}
        assert state.unknown_removals.get(Tier.HOST, 0) == 0
        return
    assert state.unknown_removals[Tier.HOST] == 156
    assert fleet.found_after == (8 + 3, 3)
    evidence = fleet.findings()["host_stores_unannounced"]
    assert evidence["removed_host_blocks_never_stored"] == 156
    assert evidence["unexplained_hits"] == evidence["reports_with_hits"] == 16


# Every kind of silent refill


Traffic = Callable[[EngineFleet, random.Random], None]


def own_former_blocks(fleet: EngineFleet, rng: random.Random) -> None:
    """More prompts than fit anywhere but in storage, in any order."""
    prompts = prompts_of(12, tokens=130)
    for prompt in [*prompts, *rng.choices(prompts, k=20)]:
        fleet.serve("small", Ask(prompt, rng.randrange(1, 40)))


def blocks_of_other_workers(fleet: EngineFleet, rng: random.Random) -> None:
    prompts = prompts_of(12, tokens=130)
    for prompt in prompts:
        fleet.serve("large", Ask(prompt))
    for prompt in rng.sample(prompts, k=12):
        fleet.serve("small", Ask(prompt, rng.randrange(1, 40)))


def hits_without_removals(fleet: EngineFleet, rng: random.Random) -> None:
    """All that is refilled stays."""
    prompts = prompts_of(12, tokens=130)
    for prompt in prompts:
        fleet.serve("large", Ask(prompt))
    for prompt in rng.sample(prompts, k=12):
        fleet.serve("other large", Ask(prompt, rng.randrange(1, 40)))
    states = fleet.index.rank_states(fleet.now)
    assert not any(state.unknown_removals.get(Tier.HOST) for state in states)


def hits_on_host_again_and_again(fleet: EngineFleet, rng: random.Random) -> None:
    """Host memory holds all that was refilled, the GPU little of it."""
    prompts = prompts_of(6, tokens=130)
    for prompt in prompts:
        fleet.serve("large", Ask(prompt))
    for prompt in rng.choices(prompts, k=20):
        fleet.serve("large host", Ask(prompt, rng.randrange(1, 40)))


def conversations(fleet: EngineFleet, rng: random.Random) -> None:
    """Answers become part of the next prompt; every turn comes back from storage."""
    turns = dict(enumerate(prompts_of(10, tokens=80)))
    for _ in range(5):
        fleet.wait(15.0)
        for i in rng.sample(sorted(turns), k=len(turns)):
            length = rng.randrange(8, 24)
            answer = fleet.answer("small", turns[i], length)
            fleet.serve("small", Ask(turns[i], length))
            turns[i] = (*turns[i], *answer, *(rng.randrange(1_000_000) for _ in range(8)))


KINDS = [
    own_former_blocks,
    blocks_of_other_workers,
    hits_without_removals,
    hits_on_host_again_and_again,
    conversations,
]


def fleet_of(
    seed: int, *, announces: bool, reports: bool = True, lag_s: float = 0.0
) -> EngineFleet:
    storage = MemoryStorage()
    sizes = {
        "small": (320, 480),
        "large": (4_096, 8_192),
        "other large": (4_096, 8_192),
        "large host": (320, 8_192),
    }
    engines = {name: engine(storage, *size, announces=announces) for name, size in sizes.items()}
    return EngineFleet(engines, seed=seed, reports=reports, lag_s=lag_s)


@pytest.mark.parametrize("traffic", KINDS)
@pytest.mark.parametrize("lag_s", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(2))
def test_hits_are_found(traffic: Traffic, lag_s: float, seed: int) -> None:
    fleet = fleet_of(seed, announces=False, lag_s=lag_s)
    traffic(fleet, random.Random(seed))
    fleet.wait(3.0)
    assert fleet.found_after is not None
    assert fleet.found_after[1] <= REQUESTS_TO_FIND


@pytest.mark.parametrize("traffic", [own_former_blocks, blocks_of_other_workers, conversations])
@pytest.mark.parametrize("seed", range(2))
def test_removals_are_found_where_engines_report_nothing(traffic: Traffic, seed: int) -> None:
    """With the first removal of a silently refilled block, which its refill by another one brings."""
    fleet = fleet_of(seed, announces=False, reports=False)
    traffic(fleet, random.Random(seed))
    assert fleet.found is not None
    assert "unexplained_hits" not in fleet.found
    assert "removed_host_blocks_never_stored" in fleet.found


@pytest.mark.parametrize("traffic", KINDS)
@pytest.mark.parametrize("lag_s", [0.0, 0.5])
def test_announced_refills_are_not(traffic: Traffic, lag_s: float) -> None:
    fleet = fleet_of(0, announces=True, lag_s=lag_s)
    traffic(fleet, random.Random(0))
    fleet.wait(3.0)
    assert fleet.num_refilled >= 5
    assert fleet.findings() == {}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("announces", [False, True])
def test_bursts_of_requests_with_one_prefix(seed: int, *, announces: bool) -> None:
    """All of a burst are planned before anything is heard; they reuse what none of them computed."""
    fleet, rng = fleet_of(seed, announces=announces, lag_s=0.2), random.Random(seed)
    shared = prompts_of(12, tokens=130)
    for prefix in shared:
        fleet.serve("large", Ask(prefix))
    for i, prefix in enumerate(shared):
        for _ in range(4):
            tail = tuple(rng.randrange(1_000_000) for _ in range(rng.randrange(20)))
            ask = Ask((*prefix, *tail), rng.randrange(1, 30))
            fleet.at(3.0 * i + rng.uniform(0.0, 0.1), partial(fleet.send, "other large", ask))
    fleet.run()
    fleet.wait(3.0)
    assert (fleet.found is None) is announces
    if fleet.found_after is not None:
        assert fleet.found_after[0] - 12 <= 4 * REQUESTS_TO_FIND


# Any fleet


class AnyFleet:
    """Engines, sizes, policies, namespaces, bursts, cancellations and lags as a seed will have them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        storage = MemoryStorage()
        policy, page = rng.choice(list(WritePolicy)), rng.choice([1, 4, PAGE])
        waits = rng.choice([PrefetchPolicy.WAIT_COMPLETE, PrefetchPolicy.TIMEOUT])
        device_tokens, host_tokens = rng.choice([256, 400]), rng.choice([256, 384, 512])
        self.names = [f"w{i}" for i in range(rng.randrange(1, 4))]
        engines = {
            name: make_engine(
                page_size=page,
                device_tokens=device_tokens,
                host_tokens=host_tokens,
                write_policy=policy,
                storage=storage,
                prefetch=PrefetchLimits(rng.choice([4, 32]), waits, 0.05, 0.0),
                max_running=rng.choice([2, 64]),
                decode_log_interval=rng.choice([1, 5, 40]),
                chunk_tokens=rng.choice([64, 8_192]),
            )
            for name in self.names
        }
        self.extra_keys = rng.choice([(None,), ("a", "b", "c")])
        self.shared = tuple(range(1, 1 + rng.choice([0, 32, 64])))
        self.num_prompts = rng.choice([4, 12, 40])
        self.fleet = EngineFleet(engines, seed=seed, lag_s=rng.choice([0.0, 0.05, 0.5, 1.5]))

    def run(self, num_steps: int) -> None:
        delay, pace_s = 0.0, self.rng.choice([0.1, 1.0, 5.0])
        for _ in range(num_steps):
            delay += self.rng.expovariate(1 / pace_s)
            self.fleet.at(delay, self._burst)
        self.fleet.run()
        self.fleet.wait(3.0)
        self.fleet.wait(60.0)

    def _burst(self) -> None:
        rng, number = self.rng, self.rng.randrange(self.num_prompts)
        own = range(1_000 * (number + 1), 1_000 * (number + 1) + rng.choice([20, 60, 100]))
        tail = (rng.randrange(10**6, 10**7) for _ in range(rng.choice([0, 0, 40])))
        prompt, extra_key = (*self.shared, *own, *tail), rng.choice(self.extra_keys)
        for _ in range(rng.choice([1, 1, 1, 4])):
            ask = Ask(prompt, rng.choice([1, 3, 20, 60]), extra_key)
            try:
                self.fleet.send(rng.choice(self.names), ask)
            except (QueueFullError, RequestTooLargeError):
                return
        if rng.random() < 0.05:
            self.fleet.cancel_one(rng.choice(self.names))


@pytest.mark.parametrize("seed", range(16))
def test_engines_that_announce_everything_are_never_suspected(seed: int) -> None:
    any_fleet = AnyFleet(seed)
    any_fleet.run(50)
    assert any_fleet.fleet.found is None
