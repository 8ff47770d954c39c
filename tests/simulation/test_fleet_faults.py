"""Whole engines under every fault of network and publisher: what is called exact is the truth.

Some hundred seeds run with the suite; ``pytest tests/simulation/test_fleet_faults.py --seeds 5000`` runs more, and
what they have met is printed at the end. The seed of a failure stands in the test's name, and is played again by

    pytest tests/simulation/test_fleet_faults.py --first-seed SEED --seeds 1

Seeds beyond the range that are listed here once found a fault.
"""

import pytest

from indexer import Trust
from protocol import Rank, Tier
from tests.simulation.fleet_scenario import Replay
from tests.simulation.fleet_world import FleetWorld
from tests.simulation.seeds import seeds_of
from tests.simulation.tally import (
    Met,
    Tally,
    ended,
    missing,
    page_of,
    policy_of,
    replay_of,
)

FOUND_FAULTS = [264, 300, 393]
USUAL_SEEDS = range(100)
"""So many meet everything that there is."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        is_plain = metafunc.function is test_any_mixture_of_faults
        seeds = seeds_of(metafunc.config, USUAL_SEEDS, FOUND_FAULTS if is_plain else ())
        metafunc.parametrize("seed", seeds)


def test_any_mixture_of_faults(seed: int, tally: Tally) -> None:
    verify(FleetWorld(seed, tally=tally))


def test_clears_delays_late_replays_and_other_pages_as_well(seed: int, tally: Tally) -> None:
    verify(FleetWorld(seed, has_more_faults=True, tally=tally))


def test_every_kind_of_fault_has_come(tally: Tally, request: pytest.FixtureRequest) -> None:
    """Whatever never comes is not tested."""
    if len(seeds_of(request.config, USUAL_SEEDS)) < len(USUAL_SEEDS) or not tally:
        pytest.skip("too few seeds were played to have met everything")
    assert not missing(tally)
    assert tally[Met.BLIND] < 0.03 * sum(tally[ended(trust)] for trust in Trust)


def verify(world: FleetWorld) -> None:
    """Play it, and hold what is claimed against what the engines hold."""
    world.run()
    count_circumstances(world)
    assert world.is_idle()
    verify_streams(world)
    verify_claims(world)
    world.wait_out_doubt()
    verify_claims(world)
    for rank in world.processes.keys() - world.blind:
        verify_none_false(world, rank)
    verify_matches(world)


def count_circumstances(world: FleetWorld) -> None:
    """What the scenario is about, and how its ranks have ended."""
    scenario, tally = world.scenario, world.tally
    for engine in scenario.engines.values():
        tally[page_of(engine.tree.page_size)] += 1
        tally[policy_of(engine.tree.write_policy)] += 1
        tally[policy_of(engine.tree.eviction_policy)] += 1
        tally[Met.EAGLE] += engine.tree.is_eagle
    tally[replay_of(Replay.NONE)] += scenario.replay is Replay.NONE
    tally[Met.LATE_JOIN] += scenario.is_late
    tally[Met.SHARED_SOCKET] += scenario.has_shared_socket
    tally[Met.SALTS] += len(scenario.salts) > 1
    tally[Met.ADAPTERS] += "ad-ns" in scenario.extra_keys
    tally[Met.COLLIDING] += scenario.has_collisions
    tally[Met.STORAGE] += scenario.has_storage
    tally[Met.IN_PARTS] += scenario.num_parts > 0
    tally[Met.BLIND] += len(world.blind)
    for status in filter(None, map(world.intake.status, world.processes)):
        tally[Met.LOST] += status.counters.losses > 0
        tally[Met.REPAIRED] += status.counters.rebuilds > 0
    for rank in world.processes:
        tally[ended(world.index.trust(rank, world.now))] += 1


def verify_streams(world: FleetWorld) -> None:
    """Every stream came to rest, and those whose past could be had in full are whole again, claims too."""
    scenario = world.scenario
    is_whole = scenario.healed().replay is Replay.FULL
    for rank in world.processes:
        status = world.intake.status(rank)
        if status is None:
            assert not world.links[rank].scenario.has_last_words, f"{rank} was never heard"
            continue
        is_asking = scenario.healed().replay is Replay.HANGING  # now and then, for ever
        is_at_rest = is_asking or status.trust is not Trust.REBUILDING
        assert is_at_rest, f"{rank} never came to rest: {scenario}"
        if is_whole:
            assert status.trust is Trust.EXACT, f"{rank} is {status.trust}: {scenario}"
        if status.trust is Trust.EXACT and not scenario.has_collisions and rank not in world.blind:
            trust = world.index.trust(rank, world.now)
            assert trust is Trust.EXACT, f"{rank} is {trust}, and its stream is whole: {scenario}"


def verify_claims(world: FleetWorld) -> None:
    """Exact: tier by tier what the engine holds. Joined: nothing that it does not hold."""
    for rank in world.processes.keys() - world.blind:
        trust = world.index.trust(rank, world.now)
        if trust in (Trust.EXACT, Trust.JOINED):
            verify_none_false(world, rank)
        if trust is Trust.EXACT and not world.scenario.has_collisions:
            claims, truth = world.claims(rank), world.truth(rank)
            world.tally[Met.COMPARED] += sum(map(len, truth.values()))
            world.tally[Met.COMPARED_HOST] += len(truth[Tier.HOST])
            missing = {tier: truth[tier] - claims[tier] for tier in Tier}
            assert not any(missing.values()), f"{rank} holds {missing}: {world.scenario}"


def verify_none_false(world: FleetWorld, rank: Rank) -> None:
    """The engine holds what is claimed.

    Where one block has a name in each of two namespaces that the index does not tell apart, a store under
    one name ends the doubt that a loss has left about the other.
    """
    trust = world.index.trust(rank, world.now)
    if world.scenario.has_collisions and trust is not Trust.EXACT:
        return
    claims, truth = world.claims(rank), world.truth(rank)
    false = {tier: claims[tier] - truth[tier] for tier in Tier}
    assert not any(false.values()), f"{rank} ({trust}) holds none of {false}: {world.scenario}"


def verify_matches(world: FleetWorld) -> None:
    """Prompts are credited with the run of leading blocks that the engine holds."""
    if world.scenario.has_collisions:
        return
    for _ in range(10):
        ask = world.anything()
        for rank in world.processes.keys() - world.blind:
            credited, held = world.credited_blocks(rank, ask), world.held_blocks(rank, ask)
            world.tally[Met.CREDITED] += credited
            if world.index.trust(rank, world.now) is Trust.EXACT:
                assert credited == held, f"{rank}: {ask}"
            else:
                assert credited <= held, f"{rank}: {ask}"
