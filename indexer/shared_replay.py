"""One replay under way, in which the streams of several ranks of a publisher may take part.

A reply that cannot be read names no rank. Where it may be of any of several, it is kept under its number until one
of them turns out to miss that number.
"""

from indexer.heard_batch import HeardBatch
from indexer.replay_ending import ReplayEnding
from indexer.stream_limits import StreamLimits

_MAX_NOBODYS = 1024


class SharedReplay:
    """A replay from ``first_seq`` on, asked for at ``now``.

    Of replies that are nobody's it keeps 1,024, with ``hold_bytes`` of payload in all. What comes beyond counts as
    unreadable: no rank is whole then.

    Attributes:
        ranks: those whose streams take part.
        is_answered: something came.
        is_short: the publisher's buffer no longer reaches back to what was asked, of some rank at least.
        is_unreadable: something came of which not even the number is known, or that could not be kept.
    """

    __slots__ = (
        "_heard",
        "_heard_at",
        "_limits",
        "_nobodys",
        "_nobodys_bytes",
        "_num_replies",
        "_started_at",
        "first_seq",
        "is_answered",
        "is_short",
        "is_unreadable",
        "ranks",
    )

    def __init__(self, first_seq: int, ranks: set[int], limits: StreamLimits, now: float) -> None:
        self.first_seq = first_seq
        self.ranks = ranks
        self.is_answered = False
        self.is_short = False
        self.is_unreadable = False
        self._limits = limits
        self._started_at = self._heard_at = now
        self._num_replies = 0
        self._heard: set[int] = set()
        self._nobodys: dict[int, HeardBatch] = {}
        self._nobodys_bytes = 0

    @property
    def is_long(self) -> bool:
        """Whether as many replies have come as one replay may have."""
        return self._num_replies >= self._limits.replay_replies

    def note_frames(self, now: float, *, is_readable: bool) -> None:
        """Frames came; where they cannot be read they may have been a batch of any rank."""
        self.is_answered = True
        if is_readable:
            self._heard_at = now
        else:
            self.is_unreadable = True

    def note_reply(self) -> None:
        """The frames were a batch."""
        self._num_replies += 1

    def note_rank(self, dp_rank: int, seq: int) -> None:
        """A reply is of this rank, whether it takes part or not."""
        if dp_rank not in self._heard:
            self._heard.add(dp_rank)
            self.is_short |= seq > self.first_seq

    def may_lack(self, dp_rank: int) -> bool:
        """Whether a rank without a reply may have published all the same, and what the publisher kept is others'."""
        return self.is_short and dp_rank not in self._heard

    def overdue(self, now: float) -> ReplayEnding | None:
        """How it has ended, if it takes too long by now."""
        if now - self._heard_at >= self._limits.replay_timeout_s:
            return ReplayEnding.FAILED
        return ReplayEnding.CUT if now - self._started_at >= self._limits.replay_total_s else None

    def keep(self, heard: HeardBatch) -> None:
        """A reply that cannot be read, of any of several ranks; the last one under its number stays."""
        before = self._nobodys.get(heard.seq)
        size_bytes = self._nobodys_bytes + len(heard.payload)
        size_bytes -= 0 if before is None else len(before.payload)
        has_room = before is not None or len(self._nobodys) < _MAX_NOBODYS
        if has_room and size_bytes <= self._limits.hold_bytes:
            self._nobodys[heard.seq] = heard
            self._nobodys_bytes = size_bytes
        else:
            self.is_unreadable = True

    def nobodys(self, seq: int) -> HeardBatch | None:
        """The reply under this number that is nobody's so far."""
        return self._nobodys.get(seq)

    def check(self) -> None:
        """Verify the bounds, and that the byte count is true."""
        size_bytes = sum(len(heard.payload) for heard in self._nobodys.values())
        assert size_bytes == self._nobodys_bytes, f"{size_bytes}, {self._nobodys_bytes} counted"
        assert size_bytes <= self._limits.hold_bytes, f"{size_bytes} bytes kept"
        assert len(self._nobodys) <= _MAX_NOBODYS, f"{len(self._nobodys)} replies kept"
