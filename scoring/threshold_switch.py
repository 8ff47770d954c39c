"""The switch between cache and load of another router, rebuilt from what is published of it, to be measured against.

    most − fewest requests > 64, and most > 1.5 · fewest?
        yes   the fewest requests, whatever is held
        no    the longest match on any tier, however busy; among equal ones the fewest requests
              nobody holds anything: the fewest requests

Overlap and load are never weighed against each other. It sees what every policy sees here, but for
predicted blocks: there nothing is counted on before an event. Left out is the size of a rank's tree as
the last tie-breaker: equal ones are drawn.

Source: SMG 1.13, cache-aware policy fed by events, with the default thresholds of its command line.
"""

from random import Random

from scoring.decision import Reason
from scoring.policy import Stateless
from scoring.ranking import Option, Ranking, ranked
from scoring.weighing import Weighing

BALANCE_ABS = 64
BALANCE_REL = 1.5


class ThresholdSwitch(Stateless):
    """The longest match while loads are balanced, the fewest requests while they are not."""

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By the one or the other."""
        options = weighing.options
        counts = [option.in_flight for option in options]
        fewest, most = min(counts), max(counts)
        if most - fewest > BALANCE_ABS and most > BALANCE_REL * fewest:
            return Ranking(ranked(options, _requests, rng)[0], Reason.IMBALANCED)
        if options[0].match is None:
            return Ranking(ranked(options, _requests, rng)[0], Reason.LOAD_ONLY)
        longest = max(map(_held, options))
        if not longest:
            return Ranking(ranked(options, _requests, rng)[0], Reason.LEAST_LOAD)
        best = [option for option in options if _held(option) == longest]
        others = [option for option in options if _held(option) != longest]
        others.sort(key=lambda option: (-_held(option), option.in_flight))
        return Ranking(ranked(best, _requests, rng)[0] + others, Reason.LONGEST_PREFIX)


def _requests(option: Option) -> float:
    return option.in_flight


def _held(option: Option) -> int:
    """Tokens of the prompt that were announced, on whatever tier."""
    return 0 if option.match is None else option.match.matched_tokens
