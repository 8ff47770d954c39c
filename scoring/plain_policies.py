"""Policies that look at what the ranks hold and are busy with, and at nothing of the request's own."""

from random import Random

from indexer.match import Prompt
from scoring.decision import Reason
from scoring.policy import Stateless
from scoring.ranking import Option, Ranking, cost_ms, draw_first, load_ms, ranked
from scoring.weighing import Weighing
from scoring.worker_table import RankRow


class LowestCost(Stateless):
    """The rank that begins to answer soonest."""

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By cost."""
        options, num_best = ranked(weighing.options, cost_ms, rng)
        if options[0].match is None:
            return Ranking(options, Reason.LOAD_ONLY)
        return Ranking(options, Reason.TIE if num_best > 1 else Reason.LOWEST_COST)


class LeastLoad(Stateless):
    """The rank that is least busy, whatever it holds."""

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By the load terms of the cost."""
        return Ranking(ranked(weighing.options, load_ms, rng)[0], Reason.LEAST_LOAD)


class PowerOfTwo(Stateless):
    """The less busy of two ranks that are drawn: nearly as even as the least busy of all.

    Many routers that know nothing of each other do not all take the same rank.
    """

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """The two by their load, then the others as they come."""
        options = list(weighing.options)
        first, second = rng.sample(range(len(options)), 2)  # in an order that is drawn, too
        if load_ms(options[second]) < load_ms(options[first]):
            first, second = second, first
        pair = [options[first], options[second]]
        for index in sorted((first, second), reverse=True):
            del options[index]
        return Ranking(pair + options, Reason.LESS_LOADED_OF_TWO)


class LongestPrefix(Stateless):
    """The rank that would reuse most of the prompt, however busy; predicted blocks count.

    What a hit is worth is the cost's to say: storage that is not worth fetching counts as not held.
    Where prefixes are not known it falls back on load.
    """

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By tokens reused, from any tier."""
        options = weighing.options
        if options[0].match is None:
            return Ranking(ranked(options, load_ms, rng)[0], Reason.LOAD_ONLY)
        return Ranking(ranked(options, _unused_tokens, rng)[0], Reason.LONGEST_PREFIX)


class RandomChoice(Stateless):
    """Any rank."""

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """One drawn, the others as they come."""
        options = list(weighing.options)
        draw_first(options, len(options), rng)
        return Ranking(options, Reason.RANDOM)


class RoundRobin:
    """The rank whose last turn is longest ago; new ranks come first, in the order of the table.

    Ranks that come, go or are passed over leave the turns of the others alone. Bounded by ranks.
    """

    def __init__(self) -> None:
        self._turns: dict[RankRow, int] = {}
        self._next_turn = 1

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By last turn."""
        turns = self._turns
        options = sorted(weighing.options, key=lambda option: turns.get(option.row, 0))
        return Ranking(options, Reason.ROUND_ROBIN)

    def chose(self, weighing: Weighing, row: RankRow, now: float) -> None:  # noqa: ARG002
        """It had its turn."""
        self._turns[row] = self._next_turn
        self._next_turn += 1

    def ended(self, row: RankRow, prompt: Prompt | None) -> None:
        """A turn is had when it begins."""

    def forget(self, row: RankRow) -> None:
        """It has no turn to wait for."""
        self._turns.pop(row, None)

    def check(self) -> None:
        """Verify that no two had the same turn, nor one that is to come."""
        turns = set(self._turns.values())
        assert len(turns) == len(self._turns), self._turns
        assert not turns or max(turns) < self._next_turn, (turns, self._next_turn)


def _unused_tokens(option: Option) -> float:
    return -sum(option.price.prompt.hit)
