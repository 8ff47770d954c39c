"""What was never heard, or was given up, comes back: by a replay, or by one pass of traffic with no replay.

Conversations live at a rank each and go on there. When each has gone on once, what the engines hold of them is
credited again, and hardly anything else is. That holds for every fleet whose GPU pools hold the
conversations. Where they do not, engines hold much on host that was announced before anybody listened, and
remove blocks under names that nobody knows: then it holds for many fleets taken together. ``--seeds`` and
``--first-seed`` say which fleets.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from indexer import ForgetReason, IndexLimits, Trust
from protocol import Rank
from tests.simulation.fleet_request import Ask
from tests.simulation.fleet_scenario import HEALTHY, Replay, Scenario
from tests.simulation.fleet_world import FleetWorld
from tests.simulation.seeds import seeds_of
from worker.engine_settings import EngineSettings

LEAST_CREDITED = 0.80
MOST_FALSE = 0.03
NUM_FLEETS = 24


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds_of(metafunc.config, range(NUM_FLEETS)))


class Conversations:
    """Some prompts that share beginnings, each at home at a rank, in a fleet without replay."""

    def __init__(
        self, seed: int, *, is_late: bool, has_room: bool, replay: Replay = Replay.NONE
    ) -> None:
        rng = Random(seed)
        drawn = Scenario.draw(rng)
        engines = {n: _roomy(one) if has_room else one for n, one in drawn.engines.items()}
        scenario = replace(
            drawn, engines=engines, replay=replay, faults=HEALTHY, is_late=is_late,
            num_prefixes=12, extra_keys=(None,), buffer_steps=6 if replay is Replay.TRUNCATED else 100_000,
        )  # fmt: skip
        self.world = world = FleetWorld(seed, scenario, IndexLimits())
        if not is_late:
            world.join()
        world.agenda.run_until(4.0)  # all have started
        ranks = list(world.processes)
        self._homes: list[tuple[Rank, Ask]] = [
            (rng.choice(ranks), Ask(tokens, None, rng.choice(scenario.salts)))
            for tokens in world.prefixes
        ]

    def go_on(self) -> None:
        """Every conversation has a further turn."""
        homes = list(self._homes)
        self.world.rng.shuffle(homes)
        for rank, ask in homes:
            tail = tuple(self.world.rng.randrange(10**6, 10**7) for _ in range(6))
            self.world.send(rank, replace(ask, tokens=(*ask.tokens, *tail)))
            self.world.agenda.run_until(self.world.now + 0.5)
        self.world.agenda.run_until(self.world.now + 3.0)
        assert self.world.is_idle()
        self.world.check()

    def credit(self) -> tuple[int, int, int]:
        """Blocks held of the conversations, credited of these, and credited beyond."""
        held = credited = false = 0
        for rank, ask in self._homes:
            one, claimed = self.world.held_blocks(rank, ask), self.world.credited_blocks(rank, ask)
            held += one
            credited += min(one, claimed)
            false += max(0, claimed - one)
        return held, credited, false


def _roomy(engine: EngineSettings) -> EngineSettings:
    """An engine whose GPU pool holds all conversations."""
    return replace(engine, tree=replace(engine.tree, device_tokens=2_000))


def after_a_late_join(seed: int, *, has_room: bool) -> tuple[int, int, int]:
    """Credit when every conversation has gone on once since somebody listens."""
    talks = Conversations(seed, is_late=True, has_room=has_room)
    for _ in range(3):
        talks.go_on()
    talks.world.join()
    talks.world.agenda.run_until(talks.world.now + 1.0)
    assert talks.credit()[1:] == (0, 0)
    talks.go_on()
    return talks.credit()


def after_a_purge(seed: int, *, has_room: bool) -> tuple[int, int, int]:
    """Credit when every conversation has gone on once since reports contradicted all claims."""
    talks = Conversations(seed, is_late=False, has_room=has_room)
    world = talks.world
    for _ in range(3):
        talks.go_on()
    world.reported = lambda _: 0
    for _ in range(3):
        talks.go_on()
    world.reported = lambda usage: usage.cached_tokens
    states = world.index.rank_states(world.now)
    assert all(state.trust is Trust.STALE for state in states if state.purges)
    talks.go_on()
    return talks.credit()


def purged_once(seed: int, replay: Replay) -> Conversations:
    """Reports contradict the claims until a rank has been purged; then it is rebuilt, without traffic."""
    talks = Conversations(seed, is_late=False, has_room=True, replay=replay)
    world = talks.world
    for _ in range(3):
        talks.go_on()
    world.reported = lambda usage: usage.cached_tokens if num_purges(talks) else 0
    for _ in range(3):
        talks.go_on()
    world.agenda.run_until(world.now + 15.0)
    world.check()
    return talks


def num_purges(talks: Conversations) -> int:
    return sum(state.purges for state in talks.world.index.rank_states(talks.world.now))


def assert_healed(held: int, credited: int, false: int) -> None:
    assert credited >= LEAST_CREDITED * held, (credited, held)
    assert false <= MOST_FALSE * (credited + false), (false, credited)


@pytest.mark.parametrize("what_happened", [after_a_late_join, after_a_purge])
def test_one_pass_heals_a_fleet(
    seed: int, what_happened: Callable[..., tuple[int, int, int]]
) -> None:
    assert_healed(*what_happened(seed, has_room=True))


@pytest.mark.timeout(3_600)  # one test plays all fleets that were asked for
@pytest.mark.parametrize("what_happened", [after_a_late_join, after_a_purge])
def test_one_pass_heals_fleets_under_pressure(
    what_happened: Callable[..., tuple[int, int, int]], pytestconfig: pytest.Config
) -> None:
    fleets = seeds_of(pytestconfig, range(NUM_FLEETS))
    if len(fleets) < NUM_FLEETS:
        pytest.skip("it holds for many fleets taken together")
    found = [what_happened(seed, has_room=False) for seed in fleets]
    assert_healed(*map(sum, zip(*found, strict=True)))


def test_a_replay_undoes_a_purge(seed: int) -> None:
    talks = purged_once(seed, Replay.FULL)
    held, credited, false = talks.credit()
    assert (credited, false) == (held, 0)
    for state in talks.world.index.rank_states(talks.world.now):
        assert state.purges <= 1
        assert state.resets.get(ForgetReason.REBUILT, 0) == state.purges
        assert state.trust is Trust.EXACT


def test_a_replay_of_a_short_buffer_credits_nothing_false(seed: int) -> None:
    talks = purged_once(seed, Replay.TRUNCATED)
    held, credited, false = talks.credit()
    assert 0 < credited <= held
    assert false == 0


def test_ranks_are_purged_at_all() -> None:
    assert sum(num_purges(purged_once(seed, Replay.FULL)) for seed in range(6)) > 3
