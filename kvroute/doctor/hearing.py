"""What was heard of one event source while the doctor listened, and what that says. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from indexer.identity import makes_prefix_claims
from kvroute.tap import Batch, Heard, Note, NoteKind
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventSource,
    Tier,
    tier_of,
)

MAX_REMEMBERED = 200_000
"""Host blocks that are remembered. Beyond it removals from host memory are not judged."""
MAX_TOPICS = 16
"""Topics that are told apart; further ones are left out."""


@dataclass(slots=True)
class Hearing:
    """One source.

    Attributes:
        why_unreachable: why the event port has no connection; None where it has one.
        block_sizes: events by tokens a block, of the groups that hold whole prefixes.
        stores: blocks stored, by tier.
        host_without_tokens: of those in host memory, the ones that are named by a hash alone.
        dp_ranks: batches by the rank that they name.
        topics: batches by topic.
        lags_s: publication to hearing of live batches, least and most.
        host_unannounced: blocks removed from host memory more often than stored there, though everything was
            heard.
    """

    source: EventSource
    was_connected: bool = False
    why_unreachable: str | None = None
    is_replay_over: bool = False
    why_no_replay: str | None = None
    first_seq: int | None = None
    num_replayed: int = 0
    num_live: int = 0
    num_events: int = 0
    block_sizes: Counter[int] = field(default_factory=Counter)
    stores: Counter[Tier] = field(default_factory=Counter)
    host_without_tokens: int = 0
    dp_ranks: Counter[int] = field(default_factory=Counter)
    topics: Counter[bytes] = field(default_factory=Counter)
    notes: Counter[NoteKind] = field(default_factory=Counter)
    worst: str = ""
    lags_s: tuple[float, float] | None = None
    host_unannounced: int = 0
    _host: Counter[EngineHash] | None = field(default_factory=Counter)

    @property
    def is_settled(self) -> bool:
        """Is there nothing more to wait for but live events?"""
        wants_replay = self.source.replay_endpoint is not None
        return self.was_connected and (self.is_replay_over or not wants_replay)

    @property
    def is_whole(self) -> bool:
        """Was everything heard that the publisher ever said?"""
        return self.first_seq == 0 and not self.notes[NoteKind.GAP]

    def add(self, heard: Heard) -> None:
        """The next piece of the story. O(blocks)."""
        if isinstance(heard, Batch):
            self._batch(heard)
        else:
            self._note(heard)

    def _note(self, note: Note) -> None:
        self.notes[note.kind] += 1
        match note.kind:
            case NoteKind.CONNECTED:
                self.was_connected = True
            case NoteKind.REPLAYED:
                self.is_replay_over = True
            case NoteKind.REPLAY_FAILED:
                self.is_replay_over, self.why_no_replay = True, note.text
            case NoteKind.UNREADABLE | NoteKind.SKIPPED_EVENT | NoteKind.BAD_FRAMES:
                self.worst = note.text
            case _:
                pass

    def _batch(self, heard: Batch) -> None:
        if self.first_seq is None:
            self.first_seq = heard.message.seq
        self.num_replayed += heard.is_replayed
        self.num_live += not heard.is_replayed
        self.num_events += len(heard.batch.events)
        self.dp_ranks[heard.dp_rank] += 1
        if len(self.topics) < MAX_TOPICS:
            self.topics[heard.message.topic] += 1
        if heard.lag_s is not None:
            least, most = self.lags_s or (heard.lag_s, heard.lag_s)
            self.lags_s = min(least, heard.lag_s), max(most, heard.lag_s)
        for event in heard.batch.events:
            if isinstance(event, BlockStored):
                self._stored(event)
            elif isinstance(event, BlockRemoved):
                self._removed(event)
            elif self._host is not None and _clears_host(event):
                self._host.clear()

    def _stored(self, event: BlockStored) -> None:
        if event.block_size and makes_prefix_claims(event.spec_kind, event.sliding_window):
            self.block_sizes[event.block_size] += 1
        tier = tier_of(event.medium)
        if tier is not None:
            self.stores[tier] += len(event.block_hashes)
        if tier is Tier.HOST and not event.token_ids:
            self.host_without_tokens += len(event.block_hashes)
        if tier is Tier.HOST and self._host is not None:
            self._host.update(event.block_hashes)
            if len(self._host) > MAX_REMEMBERED:
                self._host = None

    def _removed(self, event: BlockRemoved) -> None:
        if tier_of(event.medium) is not Tier.HOST or self._host is None or not self.is_whole:
            return
        for block_hash in event.block_hashes:
            if block_hash not in self._host:
                self.host_unannounced += 1
            elif self._host[block_hash] == 1:
                del self._host[block_hash]
            else:
                self._host[block_hash] -= 1


def _clears_host(event: AllBlocksCleared) -> bool:
    return event.medium is None or tier_of(event.medium) is Tier.HOST
