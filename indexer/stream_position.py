"""How far a stream has come in a publisher's numbering, and how far its claims can be believed.

Batches are accounted for one after the other: applied, or declared lost, or both: where some event of a
batch cannot be read, what the others say is applied, and what the rank holds is no longer known. An event
of an unknown kind is none of ours, and costs nothing. What was missed before the first applied batch is no
loss, for no claim rests on it.

    standing    None ──0──▶ EXACT ──loss──▶ DEGRADED ──full clear──▶ EXACT
                  └───n>0──▶ JOINED ─loss──▶ DEGRADED      forget: back to None
"""

from collections.abc import Iterable, Sequence

from indexer.actions import Apply, LossCause, RecordLoss, StreamAction
from indexer.heard_batch import HeardBatch
from indexer.payload_ring import PayloadRing
from indexer.stream_limits import StreamLimits
from indexer.stream_status import StreamCounters
from indexer.trust import Trust
from protocol import AllBlocksCleared, EventBatch, KvEvent, LongEvents


class StreamPosition:
    """Position and standing of one stream.

    Attributes:
        next_seq: the number to account for next; None where any will do.
        standing: trust while no replay is under way; None where nothing is known.
        num_applied: batches that the present claims rest on.
        ring: digests of what was accounted for.
        last_event_at: when a batch was last applied, monotonic seconds.
        last_live_at: when a batch that was not replayed was last applied, monotonic seconds.
        last_ts: publisher's clock of the batch of ``last_live_at``; None where it is no time.
        last_loss: the last declared loss.
        is_repairable: something is missing that a replay from 0 may bring; what came and cannot be read is not.
        resumed: what the standing is once it is shown that the publisher goes on where claims that were
            loaded end; None where none were, or it is shown.
    """

    __slots__ = (
        "_counters",
        "_max_jump",
        "is_repairable",
        "last_event_at",
        "last_live_at",
        "last_loss",
        "last_ts",
        "next_seq",
        "num_applied",
        "resumed",
        "ring",
        "standing",
    )

    def __init__(self, limits: StreamLimits, counters: StreamCounters) -> None:
        self._counters = counters
        self._max_jump = limits.max_jump
        self.ring = PayloadRing(limits.remembered_payloads)
        self.next_seq: int | None = None
        self.standing: Trust | None = None
        self.num_applied = 0
        self.is_repairable = False
        self.resumed: Trust | None = None
        self.last_event_at: float | None = None
        self.last_live_at: float | None = None
        self.last_ts: float | None = None
        self.last_loss: RecordLoss | None = None

    @property
    def expected(self) -> int:
        """The number to account for next, 0 at the start."""
        return self.next_seq or 0

    @property
    def last_seq(self) -> int | None:
        """The last number that is accounted for; None before the first."""
        return self.next_seq - 1 if self.next_seq else None

    def is_far(self, seq: int) -> bool:
        """Whether the process that claims rest on cannot have come to this number."""
        return self.num_applied > 0 and seq - self.expected > self._max_jump

    def take(
        self, heard: HeardBatch, now: float, cause: LossCause, *, is_replayed: bool = False
    ) -> list[StreamAction]:
        """Account for ``heard`` and for all that is missing before it, lost for ``cause``."""
        expected = self.expected
        assert heard.seq >= expected, f"{heard.seq} is below {expected}"
        lost = self._lose(expected, heard.seq - 1, cause) if heard.seq > expected else []
        if heard.batch is not None:
            return [*lost, *self.apply(heard, heard.batch, now, is_replayed=is_replayed)]
        self._counters.unreadable += 1
        lost += self._lose(heard.seq, heard.seq, LossCause.UNREADABLE)
        self.ring.remember(heard.seq, heard.payload)
        return lost

    def apply(
        self, heard: HeardBatch, batch: EventBatch, now: float, *, is_replayed: bool
    ) -> list[StreamAction]:
        """Account for ``batch`` under the number that is expected. O(events)."""
        if self.resumed is not None:
            self.confirm()
        self.next_seq = heard.seq + 1
        self.num_applied += 1
        self.ring.remember(heard.seq, heard.payload)
        self.last_event_at = now
        if not is_replayed:
            self.last_live_at, self.last_ts = now, batch.published_at
        if self._count(batch, is_replayed=is_replayed) or self.standing is None:
            self.standing, self.is_repairable = Trust.EXACT, False
        applied = Apply(heard.seq, batch)
        if not batch.skipped or batch.is_whole:
            return [applied]
        self._counters.partly_read += 1
        return [applied, self._record_loss(heard.seq, heard.seq, LossCause.UNREADABLE)]

    def doubt(self, cause: LossCause) -> list[StreamAction]:
        """Nobody knows what was published after the last batch: claims may be out of date."""
        loss = RecordLoss(self.expected, None, cause)
        is_known = self.last_loss == loss and self.standing is Trust.DEGRADED
        return (
            []
            if is_known or not self.num_applied
            else [self._record_loss(loss.first_seq, None, cause)]
        )

    def start_empty(self) -> None:
        """The publisher has published nothing yet."""
        self.next_seq, self.standing, self.is_repairable = 0, Trust.EXACT, False

    def resume(self, seq: int, digests: Iterable[tuple[int, int]], standing: Trust) -> None:
        """Claims were loaded that rest on every batch up to ``seq``.

        They are incomplete until the publisher is known to be the one they came from, and nothing missed.

        Args:
            digests: numbers and digests of the last payloads, that of ``seq`` among them.
        """
        for number, digest in digests:
            self.ring.put(number, digest)
        self.next_seq, self.num_applied = seq + 1, 1
        self.standing, self.resumed = Trust.JOINED, standing
        self.is_repairable = standing is Trust.DEGRADED

    def confirm(self) -> None:
        """The publisher goes on where the loaded claims end."""
        if self.resumed is not None:
            self.standing, self.resumed = self.resumed, None

    def forget(self) -> None:
        """Nothing is known of the publisher's process."""
        self.resumed = None
        self.is_repairable = False
        self.ring.clear()
        self.next_seq, self.standing, self.num_applied = None, None, 0

    def _lose(self, first_seq: int, last_seq: int, cause: LossCause) -> list[StreamAction]:
        self.next_seq = last_seq + 1
        num_batches = last_seq - first_seq + 1
        if not self.num_applied:
            self.standing = Trust.JOINED
            self.is_repairable |= cause is not LossCause.UNREADABLE
            self._counters.missed_before_join += min(num_batches, self._max_jump)
            return []
        self._counters.lost_batches += num_batches
        return [self._record_loss(first_seq, last_seq, cause)]

    def _record_loss(self, first_seq: int, last_seq: int | None, cause: LossCause) -> RecordLoss:
        self.standing, self.resumed = Trust.DEGRADED, None
        self.is_repairable |= cause is not LossCause.UNREADABLE
        counters = self._counters
        counters.losses += 1
        counters.losses_by_cause[cause] = counters.losses_by_cause.get(cause, 0) + 1
        self.last_loss = RecordLoss(first_seq, last_seq, cause)
        return self.last_loss

    def _count(self, batch: EventBatch, *, is_replayed: bool) -> int:
        """Count a batch; returns the number of full clears in it."""
        counters = self._counters
        counters.batches += 1
        counters.replayed_batches += is_replayed
        counters.events += len(batch.events)
        if batch.skipped:
            for reason, count in batch.skip_counts.items():
                counters.skipped[reason] = counters.skipped.get(reason, 0) + count
        num_clears = _num_clears(batch.events)
        counters.clears += num_clears
        return num_clears

    def check(self) -> None:
        """Verify the invariants; a broken one is reported with the state."""
        state = f"next={self.next_seq} standing={self.standing} applied={self.num_applied}"
        assert (self.next_seq is None) == (self.standing is None), f"half known: {state}"
        assert not self.num_applied or self.next_seq, f"applied without a number: {state}"
        assert not self.next_seq or self.next_seq - 1 in self.ring, f"not remembered: {state}"


def _num_clears(events: Sequence[KvEvent]) -> int:
    if type(events) is LongEvents:  # an instance check of a sequence costs ten times as much
        return events.num_clears
    num_clears = 0
    for event in events:
        if type(event) is AllBlocksCleared and event.medium is None:
            num_clears += 1
    return num_clears
