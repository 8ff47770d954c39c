"""Which seeds a simulation plays."""

from collections.abc import Sequence

import pytest


def seeds_of(config: pytest.Config, usual: range, kept: Sequence[int] = ()) -> list[int]:
    """Those asked for by ``--first-seed`` and ``--seeds``; else the usual ones, and those that found a fault."""
    first: int | None = config.getoption("--first-seed")
    count: int | None = config.getoption("--seeds")
    start = usual.start if first is None else first
    seeds = range(start, start + (len(usual) if count is None else count))
    return [*seeds, *(seed for seed in kept if first is None and seed not in seeds)]
