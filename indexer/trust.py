"""How far a rank's claims can be believed, shown wherever a score is shown."""

from enum import StrEnum


class Trust(StrEnum):
    """State of our knowledge of one rank.

    EXACT: unbroken from sequence number 0, from a clear, or fully replayed.
    JOINED: joined late; every claim is true, more may be there.
    REBUILDING: a replay is under way.
    DEGRADED: a loss could not be repaired; older claims are discounted.
    STALE: silent beyond the bound while serving, out of reach for as long, or contradicted.
    NONE: no events, or an engine whose events cannot be believed.
    """

    EXACT = "exact"
    JOINED = "joined"
    REBUILDING = "rebuilding"
    DEGRADED = "degraded"
    STALE = "stale"
    NONE = "none"
