"""Policies: each turns the eligible ranks into a ranking and says why the first is first.

Every policy sees the same options, priced the same way; it only orders them. Where several are
equally good, one of them is drawn, so that equal ranks share the work.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import attrgetter
from random import Random
from typing import NamedTuple, Protocol

from indexer.match import RankMatch
from protocol import Rank
from scoring.cost import Price
from scoring.decision import Reason
from scoring.worker_table import RankRow

TIE_MS = 1e-6
"""Costs that differ by less are equal; ranks in the same state cost the same to the last bit."""


class PolicyName(StrEnum):
    """Every policy that can be chosen."""

    COST = "cost"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOAD = "least_load"
    PREFIX_ONLY = "prefix_only"


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


class Policy(Protocol):
    """A way to order ranks."""

    def order(self, options: Sequence[Option], rng: Random) -> Ranking:
        """Rank the options, at least two. Changes nothing."""

    def chose(self, rank: Rank) -> None:
        """A request goes to the rank."""

    def forget(self, rank: Rank) -> None:
        """The rank is gone."""


class _Stateless:
    """A policy that does not remember what it chose."""

    def chose(self, rank: Rank) -> None:
        """Nothing to remember."""

    def forget(self, rank: Rank) -> None:
        """Nothing to forget."""


class LowestCost(_Stateless):
    """The rank that begins to answer soonest."""

    def order(self, options: Sequence[Option], rng: Random) -> Ranking:
        """By cost."""
        ranked, num_best = _ranked(options, _cost_ms, rng)
        if options[0].match is None:
            return Ranking(ranked, Reason.LOAD_ONLY)
        return Ranking(ranked, Reason.TIE if num_best > 1 else Reason.LOWEST_COST)


class LeastLoad(_Stateless):
    """The rank that is least busy, whatever it holds."""

    def order(self, options: Sequence[Option], rng: Random) -> Ranking:
        """By the load terms of the cost."""
        ranked, _ = _ranked(options, _load_ms, rng)
        return Ranking(ranked, Reason.LEAST_LOAD)


class LongestPrefix(_Stateless):
    """The rank that would reuse most of the prompt, however busy; predicted blocks count.

    What a hit is worth is the cost's to say: storage that is not worth fetching counts as not held.
    Where prefixes are not known it falls back on load.
    """

    def order(self, options: Sequence[Option], rng: Random) -> Ranking:
        """By tokens reused, from any tier."""
        if options[0].match is None:
            ranked, _ = _ranked(options, _load_ms, rng)
            return Ranking(ranked, Reason.LOAD_ONLY)
        ranked, _ = _ranked(options, _unused_tokens, rng)
        return Ranking(ranked, Reason.LONGEST_PREFIX)


class RandomChoice(_Stateless):
    """Any rank."""

    def order(self, options: Sequence[Option], rng: Random) -> Ranking:
        """One drawn, the others as they come."""
        ranked = list(options)
        _swap_first(ranked, len(ranked), rng)
        return Ranking(ranked, Reason.RANDOM)


class RoundRobin:
    """The rank whose last turn is longest ago; new ranks come first, in the order of the table.

    Ranks that come, go or are passed over leave the turns of the others alone. Bounded by ranks.
    """

    def __init__(self) -> None:
        self._turns: dict[Rank, int] = {}
        self._next_turn = 1

    def order(self, options: Sequence[Option], rng: Random) -> Ranking:  # noqa: ARG002
        """By last turn."""
        turns = self._turns
        ranked = sorted(options, key=lambda option: turns.get(option.row.rank, 0))
        return Ranking(ranked, Reason.ROUND_ROBIN)

    def chose(self, rank: Rank) -> None:
        """It had its turn."""
        self._turns[rank] = self._next_turn
        self._next_turn += 1

    def forget(self, rank: Rank) -> None:
        """It has no turn to wait for."""
        self._turns.pop(rank, None)


_POLICIES: dict[PolicyName, Callable[[], Policy]] = {
    PolicyName.COST: LowestCost,
    PolicyName.ROUND_ROBIN: RoundRobin,
    PolicyName.RANDOM: RandomChoice,
    PolicyName.LEAST_LOAD: LeastLoad,
    PolicyName.PREFIX_ONLY: LongestPrefix,
}


def make_policy(name: PolicyName) -> Policy:
    """A policy by name, with no history."""
    return _POLICIES[name]()


_cost_ms: Callable[[Option], float] = attrgetter("price.cost_ms")


def _ranked(
    options: Sequence[Option], key: Callable[[Option], float], rng: Random
) -> tuple[list[Option], int]:
    """Options by rising key, one of the best drawn to the front, and how many those are."""
    ranked = sorted(options, key=key)
    bound = key(ranked[0]) + TIE_MS
    num_best = 1
    while num_best < len(ranked) and key(ranked[num_best]) <= bound:
        num_best += 1
    _swap_first(ranked, num_best, rng)
    return ranked, num_best


def _swap_first(options: list[Option], num_best: int, rng: Random) -> None:
    """Draw one of the first ``num_best`` to the front."""
    if num_best > 1:
        drawn = int(rng.random() * num_best)
        options[0], options[drawn] = options[drawn], options[0]


def _load_ms(option: Option) -> float:
    return option.price.queue_ms + option.price.decode_ms


def _unused_tokens(option: Option) -> float:
    return -sum(option.price.prompt.hit)
