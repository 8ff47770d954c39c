"""Rankings: eligible ranks in the order in which a policy would take them."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random
from typing import NamedTuple

from indexer.match import RankMatch
from scoring.cost import Price
from scoring.decision import Reason
from scoring.worker_table import RankRow

TIE_MS = 1e-6
"""Costs that differ by less are equal; ranks in the same state cost the same to the last bit."""


class Option(NamedTuple):
    """One eligible rank. ``match`` is None where prefixes are not known."""

    row: RankRow
    match: RankMatch | None
    price: Price
    in_flight: int
    queued_tokens: int


class Ranking(NamedTuple):
    """Options, best first, and why the first is first."""

    options: list[Option]
    reason: Reason


def ranked(
    options: Sequence[Option], key: Callable[[Option], float], rng: Random
) -> tuple[list[Option], int]:
    """Options by rising key, one of the best drawn to the front, and how many those are."""
    found = sorted(options, key=key)
    bound = key(found[0]) + TIE_MS
    num_best = 1
    while num_best < len(found) and key(found[num_best]) <= bound:
        num_best += 1
    draw_first(found, num_best, rng)
    return found, num_best


def draw_first(options: list[Option], num_best: int, rng: Random) -> None:
    """Draw one of the first ``num_best`` to the front."""
    if num_best > 1:
        drawn = int(rng.random() * num_best)
        options[0], options[drawn] = options[drawn], options[0]


cost_ms: Callable[[Option], float] = attrgetter("price.cost_ms")
"""What the prompt costs on the rank, milliseconds."""


def load_ms(option: Option) -> float:
    """What the rank is busy with, whatever it holds, milliseconds."""
    return option.price.queue_ms + option.price.decode_ms
