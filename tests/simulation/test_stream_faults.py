"""Streams under every fault: after the network heals, what is called exact is the truth.

``--seeds`` and ``--first-seed`` say which are played, as in ``test_fleet_faults``. Seeds beyond the ranges once found
a fault.
"""

import pytest

from tests.simulation.seeds import seeds_of
from tests.simulation.stream_world import StreamWorld

USUAL = {
    "test_any_mixture_of_faults": (range(240), (282, 944, 1254, 1327)),
    "test_delays_partitions_and_foreign_numbers_as_well": (range(2000, 2200), ()),
    "test_what_was_lost_at_the_end_is_found_behind_the_silence": (
        range(1000, 1160),
        (680, 1581, 3057),
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    usual, kept = USUAL[metafunc.function.__name__]
    metafunc.parametrize("seed", seeds_of(metafunc.config, usual, kept))


def test_any_mixture_of_faults(seed: int) -> None:
    world = StreamWorld(seed)
    world.run()
    world.verify()


@pytest.mark.parametrize("has_last_words", [True, False])
def test_delays_partitions_and_foreign_numbers_as_well(seed: int, has_last_words: bool) -> None:
    world = StreamWorld(seed, has_last_words=has_last_words, has_more_faults=True)
    world.run()
    if has_last_words or world.scenario.has_replay:
        world.verify()


def test_what_was_lost_at_the_end_is_found_behind_the_silence(seed: int) -> None:
    world = StreamWorld(seed, has_last_words=False)
    world.run()
    if world.scenario.has_replay:
        world.verify()
