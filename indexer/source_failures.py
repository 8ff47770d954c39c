"""What nobody expected while a source was listened to: counted for the source, and logged once a kind.

Whatever a publisher sends, and whatever is made of it, costs its own claims at most: everybody else's events go
on. What is expected to go wrong is dealt with where it arises, and is not counted here.
"""

import logging
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import ParamSpec, TypeVar

from protocol import EventSource

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Failed(StrEnum):
    """Where an exception came from, and so what it costs.

    LIVE, REPLY: a message. It is lost like one that cannot be read, and what its ranks hold is in doubt.
    PART: one part of a long message. The rest of it is lost, and what its ranks hold is in doubt.
    SOURCE: anything else, or the loss itself: the source begins anew, without a claim.
    """

    LIVE = "failed_live"
    REPLY = "failed_replies"
    PART = "failed_parts"
    SOURCE = "failed_sources"


class SourceFailures:
    """The supervisor of all sources; those that are noted are listened to, so there are few.

    Attributes:
        num_all: exceptions, those of sources that were forgotten since among them.
    """

    def __init__(self) -> None:
        self.num_all = 0
        self._counts: dict[EventSource, Counter[Failed]] = {}
        self._logged: dict[EventSource, set[tuple[Failed, type[Exception]]]] = {}

    def guard(
        self,
        source: EventSource,
        where: Failed,
        act: Callable[_P, _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T | None:
        """Do something for a source; None where it raises. The first exception of a kind is logged."""
        try:
            return act(*args, **kwargs)
        except Exception as error:  # the supervisor of one source: all others go on
            self.num_all += 1
            self._counts.setdefault(source, Counter())[where] += 1
            logged, kind = self._logged.setdefault(source, set()), (where, type(error))
            if kind not in logged:
                logged.add(kind)
                logger.exception("%s: %s; counted from here on", source.endpoint, where)
            return None

    def counts(self, source: EventSource) -> dict[str, int]:
        """How often what failed, by name."""
        counts = self._counts.get(source, Counter())
        return {str(where): counts[where] for where in Failed}

    def forget(self, source: EventSource) -> None:
        """Nobody listens to the source any more."""
        self._counts.pop(source, None)
        self._logged.pop(source, None)
