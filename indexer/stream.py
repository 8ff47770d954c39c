"""One rank's event stream: from numbered messages, heard late, twice or not at all, to batches in order.

Pure: it is told what was heard and returns what to do. Its rules, by what the next number should be:

    live, expected            applied at once
    live, higher              held; a replay is asked for from the first missing number. Without a
                              replay socket the missing ones are lost at once
    live, far beyond          dropped; the last number is replayed and compared, for it is a restart or none
                              of ours. Without a replay that answers it is a restart
    live, lower, same bytes   dropped: a duplicate, or an overlap with a replay
    live, lower, other bytes  the publisher restarted: everything is forgotten and begins again; behind a
                              reconnect by a replay, for messages of several processes may be mixed
    resumed behind a dump     the same as after a reconnect; a lower number that is unknown is a restart
    live, unreadable          missing like one never heard; lost if its replay is unreadable too
    unreadable event          the rest is applied, and the batch is a loss: a replay says the same
    first heard, 0            applied: nothing was before it
    first heard, n > 0        held; replay from 0. Without a replay socket we have joined late
    replayed, old             dropped
    replayed, first too late  the publisher's buffer is truncated: what lies between is lost
    replayed, a later hole    asked for again
    end of replay             held batches are applied; what is missing between them is asked for again
                              where it may have been published after the replay, else lost
    replay hangs or fails     lost; behind a reconnect what is held is in doubt too, even behind a clear
    it cannot be read         lost
    lost                      a repair is tried, ever more seldom, unless the buffer begins too late or what
                              is lost cannot be read: a replay from 0 takes the place of all claims
    reconnected               the last number is replayed and compared: the same process goes on from
                              there, another one has restarted. Where none was applied so far, what is held
                              may be of either and is dropped. Without a replay socket the next live number decides
    silent                    the same comparison, without distrust: it finds batches lost at the end

A loss leaves claims in doubt (``DEGRADED``) until a full clear, a restart or a repair.

Invariants (``check``): nothing is held while the stream follows; no held number is below the expected one.
"""

from collections.abc import Iterable

from indexer.actions import Forget, ForgetReason, LossCause, StreamAction
from indexer.heard_batch import HeardBatch
from indexer.held_batches import HeldBatches
from indexer.inquiry import Inquiry
from indexer.replay_ending import ReplayEnding
from indexer.silence_clock import SilenceClock
from indexer.stream_limits import DEFAULT_STREAM_LIMITS, StreamLimits
from indexer.stream_mode import Mode
from indexer.stream_position import StreamPosition
from indexer.stream_status import ResetCause, StreamCounters
from indexer.trust import Trust


class EventStream:
    """The stream of one rank of one publisher.

    Args:
        has_replay: whether replays can be asked for.
        limits: bounds, each with what happens there.

    Attributes:
        counters: all that happened.
        position: where the stream stands; to be read only.
        held: live batches held during a replay; to be read only.
    """

    def __init__(self, has_replay: bool, limits: StreamLimits = DEFAULT_STREAM_LIMITS) -> None:
        self.counters = StreamCounters()
        self.position = StreamPosition(limits, self.counters)
        self.held = HeldBatches(limits.hold_batches, limits.hold_bytes)
        self._inquiry = Inquiry(has_replay, limits, self.position, self.counters)
        self._lost_connection = False
        self._silence = SilenceClock(limits.settle_s, limits.silence_s)

    @property
    def trust(self) -> Trust:
        """How far the rank's claims can be believed, as far as its stream knows."""
        if self._inquiry.mode.is_holding:
            return Trust.REBUILDING
        return self.position.standing or Trust.NONE

    @property
    def is_replaying(self) -> bool:
        """Whether a conversation that the stream asked for is still of use to it."""
        return self._inquiry.is_open

    @property
    def is_untouched(self) -> bool:
        """Whether no batch of the rank was ever heard."""
        return self.position.last_seq is None and not self.held

    def resume(self, seq: int, digests: Iterable[tuple[int, int]], standing: Trust) -> None:
        """Begin where claims that were loaded end, see ``StreamPosition.resume``; before anything is heard."""
        assert self.is_untouched, "the stream has begun already"
        self.position.resume(seq, digests, standing)

    def on_connected(self) -> list[StreamAction]:
        """The live socket is connected, for the first time or again."""
        inquiry = self._inquiry
        is_asking = inquiry.mode in (Mode.JOIN, Mode.PROBE) and not self._lost_connection
        self._lost_connection = False
        if is_asking or not inquiry.has_replay:
            return []
        inquiry.forgive()
        inquiry.repair.succeed()
        if self.position.expected == 0:
            # no number tells whose the held ones are: the replay brings them again
            self.counters.discarded += self.held.clear()
            inquiry.forget_live()
        return [inquiry.ask_whether_same()]

    def on_disconnected(self) -> None:
        """The live socket lost its connection: a replay under way may be answered by anybody."""
        self._lost_connection = True
        self._inquiry.suspend()

    def on_live(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        """A live message came. O(events of the batch) where it is the expected one."""
        self._silence.since = now
        position, inquiry = self.position, self._inquiry
        is_next = heard.seq == position.next_seq and inquiry.mode is Mode.FOLLOW
        if is_next and heard.batch is not None:
            inquiry.note_live(heard.seq)
            return position.apply(heard, heard.batch, now, is_replayed=False)
        inquiry.leave_check()
        expected = position.next_seq or 0
        if heard.seq < expected:
            return self._on_lower(heard, now)
        if heard.seq > expected and self.position.is_far(heard.seq):
            return self._on_far(heard, now)
        if inquiry.mode is not Mode.FOLLOW:
            return self._on_live_in_replay(heard, now)
        return self._on_ahead(heard, now)

    def on_reply(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        """A replayed message of the conversation that the stream asked for came."""
        if not self._inquiry.is_open:
            return []
        is_first = self._inquiry.hear_reply()
        if self._inquiry.mode in (Mode.PROBE, Mode.CHECK):
            return self._on_probe_reply(heard, now)
        forgotten = self._on_rebuild_starts(heard.seq) if self._inquiry.mode is Mode.REBUILD else []
        return forgotten + self._on_ordered_reply(heard, now, is_first=is_first)

    def on_nobodys_reply(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        """A replayed message that cannot be read, and is perhaps of this rank: it is if it is expected."""
        is_ordered = self._inquiry.mode in (Mode.JOIN, Mode.GAP)
        is_ordered |= self._inquiry.mode is Mode.CHECK and self._inquiry.is_same
        if not is_ordered or heard.seq != self.position.expected:
            return []
        return self.on_reply(heard, now)

    def on_replay_end(self, ending: ReplayEnding, now: float) -> list[StreamAction]:
        """The conversation that the stream asked for is over."""
        if not self.is_replaying:
            return []
        match ending:
            case ReplayEnding.SHORT if self._inquiry.mode is not Mode.GAP:
                return self._give_up(ending, now)
            case ReplayEnding.COMPLETE | ReplayEnding.SHORT:
                self.counters.replays_completed += 1
                return self._on_all_replayed(now)
            case ReplayEnding.CUT if self._inquiry.can_ask:
                self.counters.replays_cut += 1
                return [self._inquiry.ask_for_rest()]
            case _:
                return self._give_up(ending, now)

    def on_tick(self, now: float, *, is_purged: bool = False) -> list[StreamAction]:
        """Time passes on a connected stream: bring back what was lost or purged, look behind a silence."""
        inquiry = self._inquiry
        if inquiry.mode is not Mode.FOLLOW or not inquiry.has_replay:
            return []
        if inquiry.begin_repair_if_due(now, is_purged=is_purged):
            return [inquiry.ask(Mode.REBUILD if self.position.next_seq else Mode.JOIN, 0)]
        if self._silence.begin_if_due(now):
            inquiry.forgive()
            return [inquiry.ask(Mode.CHECK, max(self.position.expected - 1, 0))]
        return []

    def on_failure(self) -> list[StreamAction]:
        """What was made of a message is not known: all of what it said, some of it, or nothing."""
        return self.position.doubt(LossCause.UNREADABLE)

    # Live messages out of turn

    def _on_lower(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        inquiry = self._inquiry
        is_same = self.position.ring.compare(heard.seq, heard.payload)
        is_first = inquiry.last_live is None and self.position.resumed is None
        is_overlap = is_first or (inquiry.last_live is not None and heard.seq > inquiry.last_live)
        if is_same or (is_same is None and is_overlap):
            if is_same:
                self.position.confirm()
            self.counters.duplicates += 1
            inquiry.note_live(max(heard.seq, inquiry.last_live or 0))
            return []
        return self._restart(ResetCause.LOWER_NUMBER, heard, now)

    def _on_live_in_replay(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        if is_same := self.held.compare(heard):
            self.counters.duplicates += 1
            return []
        if is_same is False:
            return self._restart(ResetCause.OTHER_CONTENT, heard, now)
        if self._inquiry.last_live is not None and heard.seq < self._inquiry.last_live:
            return self._on_regression(heard, now)
        self._inquiry.note_live(heard.seq)
        if self.held.add(heard):
            return []
        self.counters.hold_overflows += 1
        return self._give_up(ReplayEnding.FAILED, now, heard)

    def _on_regression(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        """The live number fell back to one never heard: overtaken, or of another process."""
        self.counters.regressions += 1
        if not self._inquiry.can_ask:
            return self._restart(ResetCause.LOWER_NUMBER, heard, now)
        self.counters.discarded += self.held.clear()
        self._inquiry.note_live(heard.seq)
        self.held.add(heard)
        return [self._inquiry.ask_whether_same()]

    def _on_ahead(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        """Not below the expected number, with nothing held and no replay under way."""
        position, inquiry = self.position, self._inquiry
        inquiry.note_live(heard.seq)
        if heard.seq > position.expected and position.next_seq is not None:
            self.counters.gaps += 1
        # the next number may be another process's
        is_to_prove = inquiry.is_unproven and inquiry.can_ask
        if heard.seq == position.expected and heard.batch is not None and not is_to_prove:
            return position.take(heard, now, LossCause.NO_REPLAY)
        if inquiry.can_ask:
            if self.held.add(heard):
                return [inquiry.ask_for_missing()]
            self.counters.hold_overflows += 1
        inquiry.schedule_repair(now)
        cause = LossCause.UNANSWERED if inquiry.has_replay else LossCause.NO_REPLAY
        return position.take(heard, now, cause)

    def _on_far(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        """Another process, or none of ours: a replay under way shows it, else one is asked for."""
        self.counters.implausible += 1
        if self._inquiry.mode is not Mode.FOLLOW:
            return []
        asked = self._inquiry.ask_about_far()
        return [asked] if asked else self._restart(ResetCause.FAR_NUMBER, heard, now)

    # Replies

    def _on_probe_reply(self, heard: HeardBatch, now: float) -> list[StreamAction]:
        last_seq = self.position.expected - 1
        if heard.seq < last_seq:
            self.counters.replayed_old += 1
            return []
        if heard.seq == last_seq and self.position.ring.compare(heard.seq, heard.payload):
            self._inquiry.find_same()
            self.position.confirm()
            return []
        if heard.seq > last_seq and self._inquiry.is_same:
            self._inquiry.find_more()
            return self._on_ordered_reply(heard, now, is_first=False)
        is_missing = heard.seq > last_seq
        cause = ResetCause.PROBE_MISSING if is_missing else ResetCause.PROBE_DIFFERS
        return self._reset(cause) + self._inquiry.join(now)

    def _on_rebuild_starts(self, first_seq: int) -> list[StreamAction]:
        self._inquiry.repair.cancel()  # until it is known what this replay leaves in doubt
        if first_seq > 0 and not self._inquiry.is_purged:  # the buffer no longer reaches back to 0
            self._inquiry.find_late()
            self._inquiry.find_more()
            return []
        self.counters.rebuilds += 1
        self.position.forget()
        self._inquiry.find_all()
        return [Forget(ForgetReason.REBUILT)]

    def _on_ordered_reply(
        self, heard: HeardBatch, now: float, *, is_first: bool
    ) -> list[StreamAction]:
        expected = self.position.expected
        if heard.seq < expected:
            self.counters.replayed_old += 1
            return []
        if self.held.compare(heard) is False:
            return self._reset(ResetCause.OTHER_CONTENT) + self._inquiry.join(now)
        if self.position.is_far(heard.seq):
            return self._reset(ResetCause.FAR_NUMBER) + self._inquiry.join(now)
        released: list[StreamAction] = []
        if heard.seq > expected:
            if is_first:
                self._inquiry.find_late()
                self.counters.replays_truncated += 1
            else:
                self.counters.replay_holes += 1
                if self._inquiry.can_ask:
                    return [self._inquiry.ask_for_missing()]
                self._inquiry.schedule_repair(now)
            released = self._release_below(heard.seq, now)
        self.held.discard(heard.seq)
        return released + self.position.take(heard, now, LossCause.TRUNCATED, is_replayed=True)

    def _on_all_replayed(self, now: float) -> list[StreamAction]:
        inquiry = self._inquiry
        inquiry.end()
        is_missing = inquiry.mode is Mode.CHECK and not inquiry.is_same and inquiry.has_buffer
        if is_missing or inquiry.mode is Mode.PROBE:
            return self._reset(ResetCause.PROBE_MISSING) + inquiry.join(now)
        is_gone = inquiry.mode is Mode.REBUILD  # another process, which has published nothing
        forgotten = self._reset(ResetCause.PROBE_MISSING) if is_gone else []
        if self.position.next_seq is None:
            self.position.start_empty()
        released = self._release(now, LossCause.TRUNCATED)
        is_whole = inquiry.mode is Mode.FOLLOW and self.position.standing is Trust.EXACT
        if inquiry.is_short or is_whole:
            inquiry.repair.succeed()
        return forgotten + released

    # Giving up, releasing, forgetting

    def _give_up(
        self, ending: ReplayEnding, now: float, last: HeardBatch | None = None
    ) -> list[StreamAction]:
        """The replay is of no use: declare what is missing lost, apply what is held, and ``last`` after it."""
        is_unproven = self._inquiry.is_unproven
        self.counters.replays_failed += 1
        is_unreadable = ending in (ReplayEnding.UNREADABLE, ReplayEnding.GARBLED)
        cause = LossCause.UNREADABLE if is_unreadable else LossCause.UNANSWERED
        doubt: list[StreamAction] = []
        if self._inquiry.misses_something(cause):
            if self._inquiry.mode is not Mode.GAP or not self.held:
                doubt = self.position.doubt(cause)
            if ending is not ReplayEnding.UNREADABLE:
                self._inquiry.schedule_repair(now)
        released = doubt + self._release(now, cause)
        if last is not None:
            released += self._take(last, now, cause)
        if is_unproven and released != doubt:
            # what was held may be another process's than what follows, a clear and the start too
            self._inquiry.schedule_repair(now)
            released += self.position.doubt(cause)
        return released

    def _take(self, heard: HeardBatch, now: float, cause: LossCause) -> list[StreamAction]:
        if self.position.is_far(heard.seq):
            self.counters.implausible += 1
            return []
        return self.position.take(heard, now, cause)

    def _release(self, now: float, cause: LossCause) -> list[StreamAction]:
        """Apply what is held, in order; ask again or lose what is missing; then follow.

        Args:
            cause: of losses; TRUNCATED where the replay is complete, so that asking again may help.
        """
        inquiry = self._inquiry
        may_ask = cause is LossCause.TRUNCATED
        actions: list[StreamAction] = []
        while (seq := self.held.first_seq) is not None:
            expected = self.position.expected
            is_missing = seq > expected or not self.held.is_readable(seq)
            if may_ask and is_missing and seq >= inquiry.asked_below:
                if inquiry.can_ask:
                    return [*actions, inquiry.ask_for_missing()]
                inquiry.schedule_repair(now)
            actions += self._take(self.held.pop_first(), now, cause)
        self._silence.settle(now, is_routine=inquiry.mode is Mode.CHECK)
        inquiry.follow()
        return actions

    def _release_below(self, end_seq: int, now: float) -> list[StreamAction]:
        actions: list[StreamAction] = []
        while (seq := self.held.first_seq) is not None and seq < end_seq:
            heard = self.held.pop_first()
            if self._inquiry.is_unproven:  # it may be of the process before
                self.counters.discarded += 1
            else:
                actions += self._take(heard, now, LossCause.TRUNCATED)
        return actions

    def _restart(self, cause: ResetCause, heard: HeardBatch, now: float) -> list[StreamAction]:
        return self._reset(cause) + self._on_ahead(heard, now)

    def _reset(self, cause: ResetCause) -> list[StreamAction]:
        """Forget all that rests on another process."""
        self.counters.resets[cause] = self.counters.resets.get(cause, 0) + 1
        self.counters.discarded += self.held.clear()
        self.position.forget()
        self._inquiry.forget()
        return [Forget(ForgetReason.RESTARTED)]

    def check(self) -> None:
        """Verify the invariants; a broken one is reported with the state."""
        self.position.check()
        self.held.check()
        self._inquiry.check()
        first, expected = self.held.first_seq, self.position.expected
        state = f"{self._inquiry.mode} expected={expected} held from {first}"
        assert self._inquiry.mode.is_holding or first is None, f"held without a replay: {state}"
        assert first is None or first >= expected, f"held below the expected: {state}"
