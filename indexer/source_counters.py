"""What happened on one publisher's sockets, as plain counters."""

from dataclasses import dataclass, replace


@dataclass(slots=True)
class SourceCounters:
    """What happened on one publisher's sockets, beside its streams.

    Attributes:
        connects, disconnects: of the live socket.
        bad_frames: live messages that are not three good frames.
        foreign_topics: live messages outside the subscription.
        bad_replies: replay replies that cannot be read.
        stray_replies: replies of no conversation that is still wanted.
        refused_ranks: batches that name a rank beyond the bound.
        misnamed_ranks: batches that name a rank with a publisher of its own, another one. They are of this
            publisher's rank.
        nobodys: live batches that cannot be read and may be of any of several ranks.
    """

    connects: int = 0
    disconnects: int = 0
    bad_frames: int = 0
    foreign_topics: int = 0
    bad_replies: int = 0
    stray_replies: int = 0
    refused_ranks: int = 0
    misnamed_ranks: int = 0
    nobodys: int = 0

    def copy(self) -> "SourceCounters":
        """A snapshot that no longer changes."""
        return replace(self)
