"""The index as the planner sees it, and the guard that keeps its faults from failing requests.

Knowing who holds what makes requests faster; not knowing must never make them fail. So an exception of
the index is a bug that is survived: counted by verb, logged once a verb and type, and answered with
"nothing known". The guard stands around the calls of the index alone, nothing of the planner is in it.
"""

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import ParamSpec, Protocol, TypeVar

from indexer.match import Prompt, RankMatch
from indexer.trust import Trust
from protocol import Rank

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PrefixIndex(Protocol):
    """What the planner asks of the index and tells it."""

    def match(self, prompt: Prompt, ranks: Sequence[Rank], now: float) -> list[RankMatch]:
        """The longest run that each rank holds: one a rank, in the same order."""

    def predict(self, rank: Rank, prompt: Prompt, now: float) -> None:
        """The prompt was dispatched to the rank, which will soon hold it."""

    def withdraw(self, rank: Rank, prompt: Prompt, under_way: Sequence[Prompt]) -> None:
        """It came to nothing; these others, dispatched to the rank, are under way."""

    def observe(self, rank: Rank, prompt: Prompt, now: float) -> None:
        """The rank began to answer the prompt: it holds its full blocks on GPU."""

    def report(
        self,
        rank: Rank,
        prompt: Prompt,
        cached_tokens: int | None,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
    ) -> None:
        """The request is complete; the engine reported this many cached tokens, or nothing."""

    def trust(self, rank: Rank, now: float) -> Trust:
        """How far claims about the rank can be believed."""


class IndexVerb(StrEnum):
    """What was asked of the index when it failed."""

    MATCH = "match"
    PREDICT = "predict"
    WITHDRAW = "withdraw"
    OBSERVE = "observe"
    REPORT = "report"
    TRUST = "trust"


class GuardedIndex:
    """A prefix index that never raises.

    Attributes:
        failures: exceptions and answers of the wrong length, by what was asked.
    """

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self._logged: set[tuple[IndexVerb, type[Exception]]] = set()
        self.failures = dict.fromkeys(IndexVerb, 0)

    def match(self, prompt: Prompt, ranks: list[Rank], now: float) -> list[RankMatch] | None:
        """One match a rank, in the order of ``ranks``; None if the lookup failed.

        An answer about more or fewer ranks than were asked for is a failure: nothing of it is believed.
        """
        found = self._guard(IndexVerb.MATCH, self._index.match, prompt, ranks, now)
        if found is not None and len(found) != len(ranks):
            self.failures[IndexVerb.MATCH] += 1
            return None
        return found

    def predict(self, rank: Rank, prompt: Prompt, now: float) -> None:
        """See `PrefixIndex.predict`."""
        self._guard(IndexVerb.PREDICT, self._index.predict, rank, prompt, now)

    def withdraw(self, rank: Rank, prompt: Prompt, under_way: Sequence[Prompt]) -> None:
        """See `PrefixIndex.withdraw`."""
        self._guard(IndexVerb.WITHDRAW, self._index.withdraw, rank, prompt, under_way)

    def observe(self, rank: Rank, prompt: Prompt, now: float) -> None:
        """See `PrefixIndex.observe`."""
        self._guard(IndexVerb.OBSERVE, self._index.observe, rank, prompt, now)

    def report(
        self,
        rank: Rank,
        prompt: Prompt,
        cached_tokens: int | None,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
    ) -> None:
        """See `PrefixIndex.report`."""
        report = self._index.report
        self._guard(
            IndexVerb.REPORT, report, rank, prompt, cached_tokens, at_decision, decided_at, now
        )

    def trust(self, rank: Rank, now: float) -> Trust:
        """See `PrefixIndex.trust`; ``none`` if the index cannot say."""
        return self._guard(IndexVerb.TRUST, self._index.trust, rank, now) or Trust.NONE

    def trusts(self, ranks: list[Rank], now: float) -> list[Trust]:
        """The trust of each rank, in the same order; ``none`` for all if the index cannot say."""
        trust = self._index.trust
        found = self._guard(IndexVerb.TRUST, lambda: [trust(rank, now) for rank in ranks])
        return [Trust.NONE] * len(ranks) if found is None else found

    def _guard(
        self, verb: IndexVerb, ask: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T | None:
        try:
            return ask(*args, **kwargs)
        except Exception as error:
            self.failures[verb] += 1
            if (verb, type(error)) not in self._logged:
                self._logged.add((verb, type(error)))
                logger.exception("index failed to %s; counted from here on", verb.value)
            return None
