"""One publisher: its live socket feeds one stream a rank, its replay socket holds one conversation.

The publisher numbers each rank's batches apart; which rank a batch belongs to stands in the batch, else
it is the source's own. Streams say what they want replayed. One conversation runs at a time, from the
lowest number that any waiting stream wants; a stream that wants another one waits for its end, unless
nobody is left in it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from indexer.actions import Apply, Forget, ForgetReason, RecordLoss, RequestReplay, StreamAction
from indexer.claim_sink import ClaimSink
from indexer.heard_batch import HeardBatch
from indexer.presumed_rank import is_guessed, presumed_rank
from indexer.replay_ending import ReplayEnding
from indexer.shared_replay import SharedReplay
from indexer.source_counters import SourceCounters
from indexer.stream import EventStream
from indexer.stream_limits import DEFAULT_STREAM_LIMITS, StreamLimits
from indexer.stream_status import ReplayTrouble, StreamStatus
from indexer.trust import Trust
from protocol import (
    BadFramesError,
    EventSource,
    Rank,
    ReplayEnd,
    parse_live,
    parse_replay,
)


class SourceFeed:
    """Streams and replay conversation of one publisher.

    Args:
        is_anothers: whether a rank has a publisher of its own, another one: then only that one speaks for it,
            and what this one says under its number is of its own rank.

    Attributes:
        own_rank: the rank that batches without one of their own belong to.
        counters: all that happened beside the streams.
        replay_trouble: replays that came to nothing since the last one that did not; None where there
            are none.
    """

    def __init__(
        self,
        source: EventSource,
        sink: ClaimSink,
        limits: StreamLimits = DEFAULT_STREAM_LIMITS,
        is_anothers: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._source = source
        self._is_anothers = is_anothers
        self._sink = sink
        self._limits = limits
        self._topic = source.topic.encode("utf-8", "surrogatepass")
        self.own_rank = source.rank.dp_rank
        self._streams: dict[int, EventStream] = {}
        self._trust = {self.own_rank: Trust.NONE}  # as last told to the sink
        self._wants: dict[int, int] = {}  # rank → first number, waiting for a conversation
        self._conversation: SharedReplay | None = None
        self._is_connected = False
        self.counters = SourceCounters()
        self.replay_trouble: ReplayTrouble | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the live socket is connected."""
        return self._is_connected

    @property
    def is_replaying(self) -> bool:
        """Whether the replay socket is still listened to."""
        return self._conversation is not None

    @property
    def is_crowded(self) -> bool:
        """Whether live messages should wait at the socket until the replay has come further."""
        return any(stream.held.is_crowded for stream in self._streams.values())

    @property
    def ranks(self) -> list[Rank]:
        """Every rank heard of, and the source's own until another one speaks in its place."""
        return [self._rank(dp_rank) for dp_rank in self._streams]

    def on_connected(self, now: float) -> list[RequestReplay]:
        """The live socket is connected."""
        self.counters.connects += 1
        self._is_connected = True
        if not self._streams:
            self._streams[self.own_rank] = self._new_stream()
        for dp_rank, stream in self._streams.items():
            self._deliver(dp_rank, stream, stream.on_connected(), now)
        return self._converse(now)

    def on_disconnected(self, now: float) -> list[RequestReplay]:
        """The live socket is no longer connected: replies on their way may come from anybody."""
        self.counters.disconnects += 1
        self._is_connected = False
        self._conversation = None
        self._wants.clear()
        for dp_rank, stream in self._streams.items():
            stream.on_disconnected()
            self._deliver(dp_rank, stream, (), now)
        return []

    def on_live(self, frames: Sequence[bytes], now: float) -> list[RequestReplay]:
        """A message of the live socket came. O(bytes)."""
        try:
            message = parse_live(frames)
        except BadFramesError:
            self.counters.bad_frames += 1
            return []
        if not message.topic.startswith(self._topic):
            self.counters.foreign_topics += 1
            return []
        heard = HeardBatch.read(message.seq, message.payload)
        dp_rank = self._rank_of(heard)
        if dp_rank is None:
            self.counters.nobodys += heard.batch is None
            return []
        stream = self._streams.get(dp_rank) or self._add_stream(dp_rank, now)
        self._deliver(dp_rank, stream, stream.on_live(heard, now), now)
        return self._converse(now)

    def on_replay(self, frames: Sequence[bytes], now: float) -> list[RequestReplay]:
        """A message of the replay socket came. O(bytes)."""
        conversation = self._conversation
        if conversation is None:
            self.counters.stray_replies += 1
            return []
        try:
            reply = parse_replay(frames)
        except BadFramesError:
            self.counters.bad_replies += 1
            conversation.note_frames(now, is_readable=False)
            return []
        conversation.note_frames(now, is_readable=True)
        if isinstance(reply, ReplayEnd):
            return self._end_marked(conversation, now)
        conversation.note_reply()
        self._on_reply(conversation, HeardBatch.read(reply.seq, reply.payload), now)
        if conversation.is_long:
            return self._end(ReplayEnding.CUT, now)
        return self._converse(now)

    def on_replay_failed(self, now: float) -> list[RequestReplay]:
        """The replay socket cannot be used."""
        return self._end(ReplayEnding.FAILED, now)

    def on_failure(self, now: float) -> list[RequestReplay]:
        """A message broke off while it was dealt with: claims are in doubt, and questions may be unasked."""
        asked = self._conversation.ranks if self._conversation else set()
        for dp_rank, stream in self._streams.items():
            self._deliver(dp_rank, stream, stream.on_failure(), now)
            if stream.is_replaying and dp_rank not in asked | self._wants.keys():
                stream.on_disconnected()
                self._deliver(dp_rank, stream, stream.on_connected(), now)
        return self._converse(now)

    def on_tick(self, now: float) -> list[RequestReplay]:
        """Time passes: end a conversation that takes too long, let streams look after themselves."""
        ending = None if self._conversation is None else self._conversation.overdue(now)
        if ending is not None:
            return self._end(ending, now)
        if self._is_connected:
            for dp_rank, stream in self._streams.items():
                is_purged = self._sink.wants_rebuild(self._rank(dp_rank), now)
                asked = stream.on_tick(now, is_purged=is_purged)
                self._deliver(dp_rank, stream, asked, now)
        return self._converse(now)

    def give_up(self, dp_rank: int, now: float) -> None:
        """A rank that this publisher has named in passing turns out to have a publisher of its own."""
        if dp_rank == self.own_rank or self._streams.pop(dp_rank, None) is None:
            return
        self._wants.pop(dp_rank, None)
        if self._conversation is not None:
            self._conversation.ranks.discard(dp_rank)
        self._trust.pop(dp_rank, None)
        self._sink.set_trust(self._rank(dp_rank), Trust.NONE, now)
        self._sink.forget(self._rank(dp_rank), ForgetReason.WORKER_REMOVED, now)
        if not self._streams and self._is_connected:
            own = self._streams[self.own_rank] = self._new_stream()
            self._deliver(self.own_rank, own, own.on_connected(), now)  # asked with the next tick

    def resume(
        self,
        dp_rank: int,
        seq: int,
        digests: Iterable[tuple[int, int]],
        standing: Trust,
        now: float,
    ) -> bool:
        """The rank's claims were loaded and rest on every batch up to ``seq``; False where it is too late."""
        if not self.can_resume(dp_rank):
            return False
        stream = self._streams.get(dp_rank) or self._add_stream(dp_rank, now)
        stream.resume(seq, digests, standing)
        self._tell_trust(dp_rank, stream.trust, now)
        return True

    def can_resume(self, dp_rank: int) -> bool:
        """Whether nothing of the rank was heard or asked for so far."""
        stream = self._streams.get(dp_rank)
        return stream is None or (stream.is_untouched and not stream.is_replaying)

    def digests(self, dp_rank: int, seq: int, count: int) -> list[tuple[int, int]]:
        """Numbers and digests of what is known of a rank's last payloads up to ``seq``."""
        stream = self._streams.get(dp_rank)
        return [] if stream is None else stream.position.ring.last(seq, count)

    def status(self, rank: Rank) -> StreamStatus | None:
        """Snapshot of one rank's stream; None where it was never heard of."""
        is_ours = rank.worker == self._source.rank.worker
        stream = self._streams.get(rank.dp_rank) if is_ours else None
        if stream is None:
            return None
        return StreamStatus(
            rank=rank,
            trust=stream.trust,
            has_replay=self._source.replay_endpoint is not None,
            is_connected=self._is_connected,
            last_seq=stream.position.last_seq,
            held_batches=len(stream.held),
            held_bytes=stream.held.size_bytes,
            last_event_at=stream.position.last_event_at,
            last_live_at=stream.position.last_live_at,
            last_ts=stream.position.last_ts,
            last_loss=stream.position.last_loss,
            counters=stream.counters.copy(),
        )

    @property
    def resets(self) -> Mapping[int, int]:
        """How often each rank that was heard has begun anew. O(ranks)."""
        return {
            dp_rank: stream.counters.num_resets
            for dp_rank, stream in self._streams.items()
            if stream.position.last_seq is not None
        }

    def _on_reply(self, conversation: SharedReplay, heard: HeardBatch, now: float) -> None:
        dp_rank = self._rank_of(heard)
        if dp_rank is None:
            if heard.batch is None:
                conversation.keep(heard)
            return
        if heard.batch is not None:
            conversation.note_rank(dp_rank, heard.seq)
        stream = self._streams.get(dp_rank)
        if stream is None:
            stream = self._add_stream(dp_rank, now)
            self._deliver(dp_rank, stream, stream.on_connected(), now)
            if conversation.first_seq == 0:  # this is the replay that it wants
                del self._wants[dp_rank]
                conversation.ranks.add(dp_rank)
        if dp_rank not in conversation.ranks:
            self.counters.stray_replies += 1
            return
        is_unreadable = heard.batch is None
        if is_unreadable and is_guessed(self._streams, heard, dp_rank):
            # it is heard as nobody's, and proves no restart
            conversation.keep(heard)
            self._hear_nobodys(conversation, dp_rank, heard.seq + 1, now)
            return
        self._hear_nobodys(conversation, dp_rank, heard.seq, now)
        self._deliver(dp_rank, stream, stream.on_reply(heard, now), now)

    def _hear_nobodys(
        self, conversation: SharedReplay, dp_rank: int, end_seq: int, now: float
    ) -> None:
        """What was nobody's is of the rank that goes on with ``end_seq`` and misses numbers before it."""
        stream = self._streams[dp_rank]
        seq = stream.position.expected
        while seq < end_seq and (heard := conversation.nobodys(seq)) is not None:
            self._deliver(dp_rank, stream, stream.on_nobodys_reply(heard, now), now)
            if stream.position.expected <= seq:
                return
            seq = stream.position.expected

    def _end_marked(self, conversation: SharedReplay, now: float) -> list[RequestReplay]:
        """The publisher has sent all it had; a rank that may have missed some of it is not whole."""
        if conversation.is_unreadable:
            return self._end(ReplayEnding.GARBLED, now)
        for dp_rank in sorted(conversation.ranks & self._streams.keys() - self._wants.keys()):
            stream = self._streams[dp_rank]
            if conversation.nobodys(stream.position.expected) is not None:
                ended = stream.on_replay_end(ReplayEnding.UNREADABLE, now)
                self._deliver(dp_rank, stream, ended, now)
            elif conversation.may_lack(dp_rank):
                ended = stream.on_replay_end(ReplayEnding.SHORT, now)
                self._deliver(dp_rank, stream, ended, now)
        return self._end(ReplayEnding.COMPLETE, now)

    def _rank_of(self, heard: HeardBatch) -> int | None:
        """The rank that a message belongs to; None where it is refused, or nobody knows."""
        if heard.batch is None:
            return presumed_rank(self._streams, heard, self.own_rank)
        dp_rank = heard.batch.dp_rank
        if dp_rank is None or dp_rank == self.own_rank:
            return self.own_rank
        if dp_rank > self._limits.max_dp_rank:
            self.counters.refused_ranks += 1
            return None
        if self._is_anothers(dp_rank):
            self.counters.misnamed_ranks += 1
            return self.own_rank
        return dp_rank

    def _new_stream(self) -> EventStream:
        return EventStream(self._source.replay_endpoint is not None, self._limits)

    def _add_stream(self, dp_rank: int, now: float) -> EventStream:
        """A rank speaks for the first time; one that was only presumed makes room."""
        own = self._streams.get(self.own_rank)
        if own is not None and own.is_untouched:
            del self._streams[self.own_rank]
            self._wants.pop(self.own_rank, None)
            self._tell_trust(self.own_rank, Trust.NONE, now)
        stream = self._streams[dp_rank] = self._new_stream()
        return stream

    def _deliver(
        self, dp_rank: int, stream: EventStream, actions: Iterable[StreamAction], now: float
    ) -> None:
        for action in actions:
            match action:
                case Apply(seq, batch):
                    self._sink.apply(self._rank(dp_rank), batch, now, seq)
                case Forget(reason):
                    self._sink.forget(self._rank(dp_rank), reason, now)
                    self._trust.pop(dp_rank, None)
                    self._tell_trust(dp_rank, stream.trust, now)  # before anything is applied
                case RecordLoss(cause=cause):
                    self._sink.record_loss(self._rank(dp_rank), now, cause)
                case RequestReplay(first_seq):
                    self._wants[dp_rank] = first_seq
        self._tell_trust(dp_rank, stream.trust, now)

    def _tell_trust(self, dp_rank: int, trust: Trust, now: float) -> None:
        if self._trust.get(dp_rank) is not trust:
            self._trust[dp_rank] = trust
            self._sink.set_trust(self._rank(dp_rank), trust, now)

    def _end(self, ending: ReplayEnding, now: float) -> list[RequestReplay]:
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            is_answered = conversation.is_answered
            self.replay_trouble = ReplayTrouble.after(
                self.replay_trouble, ending, now, is_answered=is_answered
            )
        for dp_rank in sorted(conversation.ranks) if conversation else ():
            stream = self._streams.get(dp_rank)
            if stream is not None and dp_rank not in self._wants:
                self._deliver(dp_rank, stream, stream.on_replay_end(ending, now), now)
        return self._converse(now)

    def _converse(self, now: float) -> list[RequestReplay]:
        """Leave a conversation that nobody needs, begin one that somebody wants."""
        conversation = self._conversation
        if conversation is None and not self._wants:
            return []
        if conversation is not None:
            conversation.ranks = {r for r in conversation.ranks if self._takes_part(r)}
            if conversation.ranks:
                return []
            self._conversation = None
        wants, self._wants = self._wants, {}
        if not wants:
            return []
        first_seq = min(wants.values())
        self._conversation = SharedReplay(first_seq, set(wants), self._limits, now)
        return [RequestReplay(first_seq)]

    def _takes_part(self, dp_rank: int) -> bool:
        stream = self._streams.get(dp_rank)
        return stream is not None and stream.is_replaying and dp_rank not in self._wants

    def _rank(self, dp_rank: int) -> Rank:
        return Rank(self._source.rank.worker, dp_rank)

    def check(self) -> None:
        """Verify the invariants of the feed and of its streams."""
        for stream in self._streams.values():
            stream.check()
        if self._conversation is not None:
            self._conversation.check()
        in_conversation = self._conversation.ranks if self._conversation else set()
        waiting = {
            r for r, s in self._streams.items() if s.is_replaying and r not in in_conversation
        }
        assert waiting <= set(self._wants), f"{waiting} wait for no replay; wanted: {self._wants}"
        assert set(self._wants) <= set(self._streams), f"unknown ranks in {self._wants}"
        told = {r: self._trust.get(r) for r in self._streams}
        trust = {r: s.trust for r, s in self._streams.items()}
        assert all(told[r] in (trust[r], None) for r in trust), f"told {told}, is {trust}"
