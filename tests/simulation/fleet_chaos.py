"""What goes wrong in a fleet while it serves: processes, caches, connections and clients."""

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.fleet_scenario import Replay
from tests.simulation.tally import Met

if TYPE_CHECKING:
    from tests.simulation.fleet_world import FleetWorld

PACE_S = 0.12


class FleetChaos:
    """Breaks something now and then, as often as the world's scenario says."""

    def __init__(self, world: "FleetWorld") -> None:
        self._world = world

    def maybe_break(self) -> None:
        """About every ``PACE_S`` seconds."""
        world, rng, faults = self._world, self._world.rng, self._world.scenario.faults
        name = rng.choice(list(world.scenario.engines))
        link = rng.choice(world.links_of(name))
        if rng.random() < faults.restart * PACE_S:
            self._restart(name)
        elif rng.random() < faults.disconnect * PACE_S:
            link.break_off(rng.uniform(0.1, 3.0))
        elif rng.random() < faults.partition * PACE_S:
            link.cut_off()
            give_up = partial(link.break_off, 0.1)
            world.agenda.after(rng.uniform(0.5, 4.0), give_up)
        if faults.clear and rng.random() < faults.clear * PACE_S:
            self._clear_again(name, rng.choice([1, 1, 2, 8]))
        if faults.leave and rng.random() < faults.leave * PACE_S:
            world.tally[Met.LEFT] += world.leave(rng.choice(list(world.processes.values())))

    def _restart(self, name: str) -> None:
        """A new process in place of the old one, and all connections break."""
        world = self._world
        noticed_late = [
            link.break_off(world.rng.uniform(0.05, 2.0))
            for link in {id(link): link for link in world.links_of(name)}.values()
        ]
        world.tally[Met.RESTARTED] += 1
        world.tally[Met.RESTARTED_UNSEEN] += any(noticed_late)
        world.tally[Met.RESTARTED_WITHOUT_REPLAY] += world.scenario.replay is Replay.NONE
        for rank, process in list(world.processes.items()):
            if rank.worker == name:
                world.replace_process(process)

    def _clear_again(self, name: str, num_clears: int) -> None:
        """All ranks of an engine clear; in a storm they do so again and again, with traffic in between."""
        world = self._world
        for rank, process in world.processes.items():
            if rank.worker == name:
                world.tally[Met.CLEARED] += world.clear(process)
        world.tally[Met.CLEAR_STORM] += num_clears == 3
        if num_clears > 1:
            again = partial(self._clear_again, name, num_clears - 1)
            world.agenda.after(world.rng.uniform(0.02, 0.2), again)
