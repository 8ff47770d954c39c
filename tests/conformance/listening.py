"""A router's ear on one recorded publisher: frames into stream, index and plain sets.

frames ─▶ Intake ─▶ EventStream ─▶ what is applied, forgotten, lost ─┬─▶ FleetIndex
                                                                    └─▶ Fold (sets that tell the truth)
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from indexer import (
    Finding,
    FindingKind,
    FleetIndex,
    ForgetReason,
    Intake,
    LossCause,
    RankState,
    RequestReplay,
    StreamStatus,
    Trust,
)
from protocol import (
    AllBlocksCleared,
    BlockStored,
    EngineHash,
    EngineKind,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    Tier,
    WorkerId,
    WorkerSpec,
    live_frames,
    replay_frames,
    tier_of,
)

WORKER = WorkerId("w")
MODEL = "m"
Place = tuple[str | None, int | None]
"""(medium on the wire, cache group)."""


class Fold:
    """What a publisher holds by medium and cache group, folded as plain sets, with counts of hashes."""

    def __init__(self) -> None:
        self.held: dict[Place, set[EngineHash]] = {}
        self.kinds: dict[int | None, str | None] = {}
        self.counts: Counter[str] = Counter()

    def apply(self, batch: EventBatch) -> None:
        """Fold one batch."""
        self.counts["batches"] += 1
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.counts["cleared"] += 1
                self.held.clear()
                continue
            held = self.held.setdefault((event.medium, event.group_idx), set())
            hashes = set(event.block_hashes)
            num_known = len(held & hashes)
            if isinstance(event, BlockStored):
                self.kinds.setdefault(event.group_idx, event.spec_kind)
                self.counts["stored"] += len(event.block_hashes)
                self.counts["duplicate_stores"] += num_known
                held |= hashes
            else:
                self.counts["removed"] += len(event.block_hashes)
                self.counts["unknown_removals"] += len(hashes) - num_known
                held -= hashes

    def claims(self) -> dict[Tier, set[EngineHash]]:
        """Hashes by tier of the groups that make prefix claims."""
        claims: dict[Tier, set[EngineHash]] = {tier: set() for tier in Tier}
        for (medium, group), hashes in self.held.items():
            tier = tier_of(medium)
            if tier is not None and self.kinds.get(group) in (None, "full_attention"):
                claims[tier] |= hashes
        return claims

    @property
    def has_sparse_groups(self) -> bool:
        """Whether a hit needs more than full-attention blocks."""
        return any(kind not in (None, "full_attention") for kind in self.kinds.values())


class Tap:
    """A claim sink that tells the index, and folds what it was told."""

    def __init__(self, index: FleetIndex) -> None:
        self._index = index
        self.fold = Fold()
        self.num_restarts = 0
        self.losses: list[LossCause] = []

    def apply(self, rank: Rank, batch: EventBatch, now: float, seq: int | None = None) -> None:
        """See ``ClaimSink``."""
        self.fold.apply(batch)
        self._index.apply(rank, batch, now, seq)

    def forget(self, rank: Rank, reason: ForgetReason, now: float) -> None:
        """See ``ClaimSink``."""
        self.num_restarts += reason is ForgetReason.RESTARTED
        self.fold.held.clear()
        self._index.forget(rank, reason, now)

    def record_loss(self, rank: Rank, now: float, cause: LossCause) -> None:
        """See ``ClaimSink``."""
        self.losses.append(cause)
        self._index.record_loss(rank, now, cause)

    def set_trust(self, rank: Rank, trust: Trust, now: float) -> None:
        """See ``ClaimSink``."""
        self._index.set_trust(rank, trust, now)

    def wants_rebuild(self, rank: Rank, now: float) -> bool:
        """See ``ClaimSink``."""
        return self._index.wants_rebuild(rank, now)

    def shrink(self, rank: Rank, medium: str, max_blocks: int, now: float) -> bool:
        """See ``ClaimSink``."""
        return self._index.shrink(rank, medium, max_blocks, now)


class Listener:
    """One publisher is listened to from now on.

    Args:
        dp_rank: the rank that its batches name.

    Attributes:
        asked: numbers from which replays were asked for.
    """

    def __init__(
        self,
        engine: EngineKind,
        *,
        block_size: int | None = None,
        dp_rank: int = 0,
        has_replay: bool = False,
    ) -> None:
        self.rank = Rank(WORKER, dp_rank)
        replay = "tcp://w:5657" if has_replay else None
        self._source = EventSource(self.rank, "tcp://w:5557", replay)
        self.index = FleetIndex()
        spec = WorkerSpec(
            WORKER, "http://w", MODEL, engine, block_size=block_size, sources=(self._source,),
            first_rank=dp_rank,
        )  # fmt: skip
        self.index.add_worker(spec, 0.0)
        self.tap = Tap(self.index)
        self.intake = Intake(self.tap)
        self.intake.add_source(self._source, 0.0)
        self.asked: list[int] = []
        self._note(self.intake.on_connected(self._source, 0.0))

    def live(self, frames: Sequence[bytes]) -> None:
        """A live message as it came."""
        self._note(self.intake.on_live(self._source, frames, 0.0))
        self.check()

    def live_payload(self, seq: int, payload: bytes) -> None:
        """A live message, by number and payload."""
        self.live(live_frames(LiveMessage(b"", seq, payload)))

    def replay(self, frames: Sequence[bytes]) -> None:
        """A reply of the replay socket as it came."""
        self._note(self.intake.on_replay(self._source, frames, 0.0))
        self.check()

    def replay_payloads(
        self, payloads: Iterable[tuple[int, bytes]], *, has_topic_frame: bool = True
    ) -> None:
        """A whole conversation, by numbers and payloads."""
        replies: list[ReplayReply | ReplayEnd] = [ReplayReply(*one) for one in payloads]
        for reply in [*replies, ReplayEnd()]:
            frames = replay_frames(b"", reply)
            if not has_topic_frame:
                del frames[1]
            self.replay(frames)

    @property
    def status(self) -> StreamStatus:
        """The rank's stream."""
        status = self.intake.status(self.rank)
        assert status is not None
        return status

    @property
    def state(self) -> RankState:
        """What the index says of the rank."""
        return next(s for s in self.index.rank_states(0.0) if s.rank == self.rank)

    def findings(self) -> list[Finding]:
        """Findings about the rank, but for the one that every publisher without a replay socket has."""
        found = [finding for finding in self.index.findings(0.0) if self.rank in finding.ranks]
        return [finding for finding in found if finding.kind is not FindingKind.REPLAY_OFF]

    def held(self) -> dict[Tier, set[EngineHash]]:
        """Announced claims by tier."""
        return {tier: set(hashes) for tier, hashes in self.index.residency(self.rank).items()}

    def check(self) -> None:
        """Verify the invariants of stream and index."""
        self.intake.check()
        self.index.check()

    def _note(self, requests: Sequence[RequestReplay]) -> None:
        self.asked += [request.first_seq for request in requests]
