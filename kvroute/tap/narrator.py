"""One publisher's messages as a story: what came, what is missing, what began anew. Pure.

Each rank's batches are numbered apart. The number after the last one goes on; a higher one is a gap; a lower
one is a duplicate if its payload is the same as the one heard under it, and a restart if not. Nothing is
repaired: a tap shows what a subscriber is sent. While the buffer is replayed, which happens once at the
start, live messages are held, so that the story stays in order.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from indexer.stream_limits import DEFAULT_STREAM_LIMITS
from kvroute.tap.heard import Batch, Heard, Note, NoteKind
from protocol import (
    BadFramesError,
    EventBatch,
    EventSource,
    LiveMessage,
    ReplayEnd,
    UndecodablePayloadError,
    decode_batch,
    parse_live,
    parse_replay,
)

MAX_HELD = 10_000
"""Live messages held during a replay. At the bound the rest of the replay is given up."""
REMEMBERED = 1024
"""Last payloads of a rank that are known by digest; a lower number beyond them is a restart."""
MAX_DP_RANK = DEFAULT_STREAM_LIMITS.max_dp_rank
"""Highest rank that a batch may name; one beyond it counts as unreadable."""
REPLAY_TIMEOUT_S = 5.0
"""Silence within a replay. At the bound it has failed."""
MAX_STRANGE = 3
"""Connections in a row that never spoke ZeroMQ, of which is told; they come back ten times a second."""
NOT_CONNECTED_S = 5.0
SILENT_S = 10.0


@dataclass(slots=True)
class _Rank:
    """What was heard of one rank."""

    last_seq: int
    digests: OrderedDict[int, bytes] = field(default_factory=OrderedDict)

    def remember(self, seq: int, digest: bytes) -> None:
        """The batch of this number was heard last."""
        self.last_seq = seq
        self.digests[seq] = digest
        if len(self.digests) > REMEMBERED:
            self.digests.popitem(last=False)


@dataclass(slots=True)
class _Replay:
    """A replay under way."""

    heard_at: float
    first_seq: int | None = None
    num_batches: int = 0


class Narrator:
    """Tells what one source's sockets bring. ``now`` is wall clock, seconds since the epoch."""

    def __init__(self, source: EventSource, now: float) -> None:
        self._source = source
        self._topic = source.topic.encode("utf-8", "surrogatepass")
        self._ranks: dict[int, _Rank] = {}
        self._replay: _Replay | None = None
        self._was_replayed = False
        self._held: deque[tuple[Sequence[bytes], float]] = deque()
        self._since = now
        self._is_connected = False
        self._hints: set[NoteKind] = set()
        self._num_strange = 0

    @property
    def is_replaying(self) -> bool:
        """Is the replay socket still listened to?"""
        return self._replay is not None

    def on_connected(self, now: float) -> list[Heard]:
        """The live socket is connected."""
        self._is_connected = True
        self._num_strange = 0
        self._since = now
        return [self._note(NoteKind.CONNECTED, f"connected to {self._source.endpoint}", now)]

    def on_disconnected(self, now: float) -> list[Heard]:
        """The live socket lost its connection. Of those that never spoke ZeroMQ a few are told."""
        if not self._is_connected:
            self._num_strange += 1
            if self._num_strange > MAX_STRANGE:
                return []
        self._is_connected = False
        self._since = now
        told = [] if self._replay is None else self.on_replay_failed("it broke off", now)
        text = f"lost the connection to {self._source.endpoint}"
        return [*told, self._note(NoteKind.DISCONNECTED, text, now)]

    def begin_replay(self, now: float) -> bool:
        """Ask for the buffer now? Once, when there is a connection and a replay endpoint."""
        if self._was_replayed or self._source.replay_endpoint is None or not self._is_connected:
            return False
        self._was_replayed = True
        self._replay = _Replay(now)
        return True

    def on_live(self, frames: Sequence[bytes], now: float) -> list[Heard]:
        """A message of the live socket came. O(bytes)."""
        if self._replay is None:
            return self._live(frames, now)
        self._held.append((frames, now))
        if len(self._held) < MAX_HELD:
            return []
        text = f"{MAX_HELD} live batches came during the replay: the rest of it is left out"
        return [self._note(NoteKind.HOLD_FULL, text, now), *self._end_replay(now)]

    def on_replay(self, frames: Sequence[bytes], now: float) -> list[Heard]:
        """A message of the replay socket came. O(bytes)."""
        replay = self._replay
        if replay is None:
            return []
        replay.heard_at = now
        try:
            reply = parse_replay(frames)
        except BadFramesError as error:
            text = f"a replay reply that is none: {error}"
            return [self._note(NoteKind.BAD_FRAMES, text, now, frames=frames)]
        if isinstance(reply, ReplayEnd):
            return self._end_replay(now)
        told: list[Heard] = []
        if replay.first_seq is None:
            replay.first_seq = reply.seq
            if reply.seq > 0:
                text = f"the buffer begins at {reply.seq}: older batches are forgotten"
                told.append(self._note(NoteKind.REPLAY_TRUNCATED, text, now))
        replay.num_batches += 1
        topic = frames[-3] if len(frames) == 4 else self._topic
        return told + self._batch(LiveMessage(topic, reply.seq, reply.payload), now, replayed=True)

    def on_replay_failed(self, why: str, now: float) -> list[Heard]:
        """The replay socket cannot be used."""
        return [self._note(NoteKind.REPLAY_FAILED, f"no replay: {why}", now), *self._release()]

    def on_tick(self, now: float) -> list[Heard]:
        """Time passes: a replay that is silent has failed, and silence is explained once."""
        if self._replay is not None and now - self._replay.heard_at >= REPLAY_TIMEOUT_S:
            endpoint = self._source.replay_endpoint
            return self.on_replay_failed(
                f"{endpoint} has not answered within {REPLAY_TIMEOUT_S:g} s", now
            )
        if not self._is_connected:
            return self._hint(NoteKind.NOT_CONNECTED, NOT_CONNECTED_S, self._why_unconnected(), now)
        if not self._ranks:
            return self._hint(NoteKind.SILENT, SILENT_S, self._why_silent(), now)
        return []

    def _live(self, frames: Sequence[bytes], now: float) -> list[Heard]:
        try:
            message = parse_live(frames)
        except BadFramesError as error:
            if self._num_strange >= MAX_STRANGE:
                return []
            return [
                self._note(
                    NoteKind.BAD_FRAMES, f"a message that is none: {error}", now, frames=frames
                )
            ]
        return self._batch(message, now, replayed=False)

    def _batch(self, message: LiveMessage, now: float, *, replayed: bool) -> list[Heard]:
        batch: EventBatch | None = None
        why = ""
        try:
            batch = decode_batch(message.payload)
            if batch.dp_rank is not None and batch.dp_rank > MAX_DP_RANK:
                batch, why = None, "its rank is beyond what can be followed"
        except UndecodablePayloadError as error:
            why = str(error)
        dp_rank = self._dp_rank(batch)
        told = self._place(dp_rank, message, now)
        if told is None:
            return [] if replayed else [self._duplicate(dp_rank, message, now)]
        if batch is None:
            text = f"batch {message.seq} cannot be read: {len(message.payload)} bytes, {why}"
            frames = _frames(message)
            return [*told, self._note(NoteKind.UNREADABLE, text, now, dp_rank, frames=frames)]
        for reason in batch.skipped:
            text = f"an event of batch {message.seq} cannot be read: {reason}"
            told.append(self._note(NoteKind.SKIPPED_EVENT, text, now, dp_rank))
        return [*told, Batch(dp_rank, message, batch, now, replayed)]

    def _dp_rank(self, batch: EventBatch | None) -> int:
        """The rank that the batch names; of one that names none the only one heard, or the source's."""
        if batch is not None and batch.dp_rank is not None:
            return batch.dp_rank
        if batch is None and len(self._ranks) == 1:
            return next(iter(self._ranks))
        return self._source.rank.dp_rank

    def _place(self, dp_rank: int, message: LiveMessage, now: float) -> list[Heard] | None:
        """What the number says; None where the batch was heard before."""
        seq, digest = message.seq, blake2b(message.payload, digest_size=16).digest()
        rank = self._ranks.get(dp_rank)
        told: list[Heard] = []
        if rank is None:
            rank = self._ranks[dp_rank] = _Rank(seq)
            if seq > 0 and self._replay is None:
                text = f"joined at {seq}: {_batches(seq)} came before"
                told.append(self._note(NoteKind.JOINED, text, now, dp_rank))
        elif seq <= rank.last_seq:
            if rank.digests.get(seq) == digest:
                return None
            text = f"the publisher began anew: number {seq} after {rank.last_seq}"
            told.append(self._note(NoteKind.RESTART, text, now, dp_rank))
            rank = self._ranks[dp_rank] = _Rank(seq)
            if seq > 0:
                told.append(self._gap(dp_rank, 0, seq - 1, now))
        elif seq > rank.last_seq + 1:
            told.append(self._gap(dp_rank, rank.last_seq + 1, seq - 1, now))
        rank.remember(seq, digest)
        return told

    def _gap(self, dp_rank: int, first: int, last: int, now: float) -> Note:
        which = f"{first}" if first == last else f"{first} to {last}"
        text = f"{_batches(last - first + 1)} missing: {which}"
        return Note(NoteKind.GAP, text, now, dp_rank, (first, last))

    def _duplicate(self, dp_rank: int, message: LiveMessage, now: float) -> Note:
        text = f"batch {message.seq} came again"
        return Note(NoteKind.DUPLICATE, text, now, dp_rank, None, _frames(message))

    def _end_replay(self, now: float) -> list[Heard]:
        replay = self._replay
        if replay is None:
            return []
        text = f"the buffer held {_batches(replay.num_batches)}; live from here on"
        return [self._note(NoteKind.REPLAYED, text, now), *self._release()]

    def _release(self) -> list[Heard]:
        """Tell what was held; of it what the replay brought already is left out silently."""
        self._replay = None
        told: list[Heard] = []
        while self._held:
            frames, at = self._held.popleft()
            told += (
                one
                for one in self._live(frames, at)
                if not (isinstance(one, Note) and one.kind is NoteKind.DUPLICATE)
            )
        return told

    def _hint(self, kind: NoteKind, after_s: float, text: str, now: float) -> list[Heard]:
        if kind in self._hints or now - self._since < after_s:
            return []
        self._hints.add(kind)
        return [self._note(kind, text, now)]

    def _why_unconnected(self) -> str:
        if self._source.is_bound:
            return f"nobody has connected to {self._source.endpoint} yet"
        return (
            f"no connection to {self._source.endpoint} yet: are the engine's events on "
            "(--kv-events-config), does it bind that port, is the port open?"
        )

    def _why_silent(self) -> str:
        topic = self._source.topic
        heard = f"only topics that begin with {topic!r} are heard" if topic else "all are heard"
        return f"nothing published for {SILENT_S:g} s: an idle engine publishes nothing; {heard}"

    def _note(
        self,
        kind: NoteKind,
        text: str,
        now: float,
        dp_rank: int | None = None,
        *,
        frames: Sequence[bytes] = (),
    ) -> Note:
        return Note(kind, text, now, dp_rank, None, tuple(frames))


def _frames(message: LiveMessage) -> tuple[bytes, ...]:
    return (message.topic, message.seq.to_bytes(8, "big"), message.payload)


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"
