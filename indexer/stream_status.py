"""What a stream has seen, as plain counters and a snapshot."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from indexer.actions import LossCause, RecordLoss
from indexer.replay_ending import ReplayEnding
from indexer.trust import Trust
from protocol import Rank, SkipReason


class ResetCause(StrEnum):
    """How it was noticed that a publisher's process is another one.

    LOWER_NUMBER: the live socket fell back to a number it had passed, with another payload.
    OTHER_CONTENT: one number came twice, with two payloads.
    PROBE_DIFFERS: after a reconnect or a silence, the last number is replayed with another payload.
    PROBE_MISSING: the last number is no longer replayed at all.
    FAR_NUMBER: a number came that the process we follow cannot have reached.
    """

    LOWER_NUMBER = "lower_number"
    OTHER_CONTENT = "other_content"
    PROBE_DIFFERS = "probe_differs"
    PROBE_MISSING = "probe_missing"
    FAR_NUMBER = "far_number"


@dataclass(slots=True)
class StreamCounters:
    """Everything that happened on one stream, counted since it was made.

    Attributes:
        batches: applied, of which ``replayed_batches`` came by replay; ``events`` in them.
        skipped: events of readable batches that were left out, by reason.
        clears: full clears.
        duplicates: live batches dropped because they were applied or held already.
        replayed_old: replayed batches dropped because they were not above the last applied.
        gaps: jumps of the live number.
        losses: declared losses, of ``lost_batches`` batches where their number is known, or of one
            that was applied as far as it can be read (``partly_read``); ``losses_by_cause`` says why.
        missed_before_join: batches published before we listened and not replayed, ``max_jump`` at most
            a time: no claim rests on them, so they are no loss.
        unreadable: batches lost because the payload cannot be decoded, by replay neither.
        resets: restarts of the publisher, by how they were noticed.
        implausible: live batches dropped because their number is far beyond the expected one.
        regressions: live numbers that fell back during a replay, answered by a probe.
        replays, replays_completed, replays_failed, replays_cut: conversations by their end;
            ``replays_truncated`` began later than asked, ``replay_holes`` jumped in the middle.
        hold_overflows: times the hold was full; ``discarded`` held batches were dropped for a replay.
        rebuilds: times a full replay took the place of claims in doubt.
    """

    batches: int = 0
    replayed_batches: int = 0
    events: int = 0
    skipped: dict[SkipReason, int] = field(default_factory=dict)
    clears: int = 0
    duplicates: int = 0
    replayed_old: int = 0
    gaps: int = 0
    losses: int = 0
    lost_batches: int = 0
    losses_by_cause: dict[LossCause, int] = field(default_factory=dict)
    partly_read: int = 0
    missed_before_join: int = 0
    unreadable: int = 0
    resets: dict[ResetCause, int] = field(default_factory=dict)
    implausible: int = 0
    regressions: int = 0
    replays: int = 0
    replays_completed: int = 0
    replays_failed: int = 0
    replays_cut: int = 0
    replays_truncated: int = 0
    replay_holes: int = 0
    hold_overflows: int = 0
    discarded: int = 0
    rebuilds: int = 0

    @property
    def num_resets(self) -> int:
        """Restarts of the publisher, however noticed."""
        return sum(self.resets.values())

    def copy(self) -> "StreamCounters":
        """A snapshot that no longer changes."""
        return replace(
            self,
            skipped=dict(self.skipped),
            resets=dict(self.resets),
            losses_by_cause=dict(self.losses_by_cause),
        )


@dataclass(frozen=True, slots=True)
class ReplayTrouble:
    """Replays of one publisher that came to nothing, in a row.

    Attributes:
        num_failed: all of them.
        num_unanswered: of these, nothing came at all.
        num_garbled: of these, replies came that are none.
        since: end of the first one, monotonic seconds.
    """

    num_failed: int
    num_unanswered: int
    num_garbled: int
    since: float

    @classmethod
    def after(
        cls, before: "ReplayTrouble | None", ending: ReplayEnding, now: float, *, is_answered: bool
    ) -> "ReplayTrouble | None":
        """What the end of a further conversation makes of it; None where replays work."""
        match ending:
            case ReplayEnding.COMPLETE | ReplayEnding.UNREADABLE | ReplayEnding.SHORT:
                return None
            case ReplayEnding.CUT:
                return before
            case ReplayEnding.GARBLED | ReplayEnding.FAILED:
                known = before or cls(0, 0, 0, now)
                return cls(
                    known.num_failed + 1,
                    known.num_unanswered + (not is_answered),
                    known.num_garbled + (ending is ReplayEnding.GARBLED),
                    known.since,
                )


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream at one moment.

    Attributes:
        has_replay: whether the publisher offers a replay socket.
        is_connected: whether the live socket is connected.
        last_seq: number of the last batch that is accounted for; None before the first.
        held_batches: live batches held during a replay.
        last_event_at: when a batch was last applied, monotonic seconds.
        last_live_at: when a batch that was not replayed was last applied, monotonic seconds.
        last_ts: publisher's wall clock of the batch of ``last_live_at``, seconds since the epoch; None where it
            is no time.
        last_loss: which batches were last declared lost; None before the first time.
    """

    rank: Rank
    trust: Trust
    has_replay: bool
    is_connected: bool
    last_seq: int | None
    held_batches: int
    held_bytes: int
    last_event_at: float | None
    last_live_at: float | None
    last_ts: float | None
    last_loss: RecordLoss | None
    counters: StreamCounters

    def lag_s(self, wall_offset_s: float) -> float | None:
        """Seconds from publication of the last batch to its application; replayed ones are old by nature.

        Args:
            wall_offset_s: wall clock minus monotonic clock, as the caller's clocks stand.

        Returns:
            The lag, which includes the difference of the two machines' clocks; None before the first, and
            where the publisher's is no time.
        """
        if self.last_live_at is None or self.last_ts is None:
            return None
        return self.last_live_at + wall_offset_s - self.last_ts
