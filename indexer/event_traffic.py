"""What happened on the event sockets, as whoever exports counters reads it."""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol import Rank


@dataclass(frozen=True, slots=True)
class EventTraffic:
    """Counts at one moment, by kind: the names are those of the counters behind them.

    Attributes:
        overall: of all sockets together, see ``SubscriberCounters``; ``stray_messages``, of sources that
            were no longer listed; and ``failures``, exceptions that nobody expected.
        by_rank: of each listed source, under its own rank, see ``SourceCounters`` and ``Failed``.
    """

    overall: Mapping[str, int]
    by_rank: Mapping[Rank, Mapping[str, int]]
