"""What workers have said and the keeper of claims has not heard yet: long batches, told part by part.

A short batch goes straight through. A longer one is cut into parts of a bounded number of blocks, and a part
is told a step; whatever follows for the same rank waits behind it, so that the order stays. A store of many
blocks is cut into stores that follow each other, which says the same.

    [store a0 a1 a2 … a999 after p]   =   [store a0 … a127 after p] [store a128 … a255 after a127] …

Bounds: nothing more is heard from a publisher while its worker has a backlog, so each publisher adds what one
message leads to: its own events, and those of the batches that a stream held until it came. The events of
long payloads are decoded part by part, too.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from indexer.actions import ForgetReason, LossCause
from indexer.claim_sink import ClaimSink
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    LongEvents,
    Rank,
    WorkerId,
)

Step = Callable[[float], bool]
"""Tells something at a time; True where it has more to tell."""


class Backlog:
    """A claim sink in front of another one. ``work`` for each worker until nothing is left.

    Args:
        max_blocks: in one part, at least 1.
    """

    def __init__(self, sink: ClaimSink, max_blocks: int = 128) -> None:
        self._sink = sink
        self._max_blocks = max_blocks
        self._steps: dict[WorkerId, deque[tuple[Rank, Step]]] = {}  # none of them empty

    def is_behind(self, worker: WorkerId) -> bool:
        """Whether something about the worker's ranks waits."""
        return worker in self._steps

    def work(self, worker: WorkerId, now: float) -> bool:
        """Tell one part of what waits; O(``max_blocks``). Nothing where nothing does.

        Returns:
            Whether something still waits.

        Raises:
            Exception: what the keeper of claims raised. The rest of the message is dropped.
        """
        steps = self._steps.get(worker)
        if steps is None:
            return False
        rank, step = steps.popleft()
        if not steps:
            del self._steps[worker]
        if step(now):
            self._steps.setdefault(worker, deque()).appendleft((rank, step))
        return self.is_behind(worker)

    # As a claim sink

    def apply(self, rank: Rank, batch: EventBatch, now: float, seq: int | None = None) -> None:
        """The rank's next batch in order; O(``max_blocks``)."""
        if not self._waits(rank) and self._is_short(batch):
            self._sink.apply(rank, batch, now, seq)
        else:
            self._add(rank, _Telling(self._sink, rank, batch, seq, self._max_blocks))

    def forget(self, rank: Rank, reason: ForgetReason, now: float) -> None:
        """Drop every claim of the rank, and what was to be told of it, but for how far it can be believed."""
        trust: Trust | None = None
        for other, step in self._steps.pop(rank.worker, ()):
            if other != rank:
                self._add(other, step)
            elif isinstance(step, _Trusting):
                trust = step.trust
        if trust is not None:
            self._sink.set_trust(rank, trust, now)
        self._sink.forget(rank, reason, now)

    def record_loss(self, rank: Rank, now: float, cause: LossCause = LossCause.NO_REPLAY) -> None:
        """Batches are lost, after those that wait."""
        if not self._waits(rank):
            self._sink.record_loss(rank, now, cause)
            return

        def step(at: float) -> bool:
            self._sink.record_loss(rank, at, cause)
            return False

        self._add(rank, step)

    def set_trust(self, rank: Rank, trust: Trust, now: float) -> None:
        """How far the stream can be believed, after what waits."""
        if self._waits(rank):
            self._add(rank, _Trusting(self._sink, rank, trust))
        else:
            self._sink.set_trust(rank, trust, now)

    def wants_rebuild(self, rank: Rank, now: float) -> bool:
        """See ``ClaimSink``."""
        return self._sink.wants_rebuild(rank, now)

    def shrink(self, rank: Rank, medium: str, max_blocks: int, now: float) -> bool:
        """See ``ClaimSink``."""
        return self._sink.shrink(rank, medium, max_blocks, now)

    def check(self) -> None:
        """Verify that no worker without anything to tell is listed, and that steps are its own."""
        for worker, steps in self._steps.items():
            assert steps, f"nothing waits: {worker}"
            assert all(rank.worker == worker for rank, _ in steps)

    def _waits(self, rank: Rank) -> bool:
        return any(other == rank for other, _ in self._steps.get(rank.worker, ()))

    def _add(self, rank: Rank, step: Step) -> None:
        self._steps.setdefault(rank.worker, deque()).append((rank, step))

    def _is_short(self, batch: EventBatch) -> bool:
        """Whether it is told at once; a long payload is not, for only to count its blocks is to decode it."""
        if isinstance(batch.events, LongEvents) or len(batch.events) > self._max_blocks:
            return False
        num_blocks = 0
        for event in batch.events:
            if not isinstance(event, AllBlocksCleared):
                num_blocks += len(event.block_hashes)
            elif event.medium is not None:
                return False
        return num_blocks <= self._max_blocks


@dataclass(frozen=True, slots=True)
class _Trusting:
    """How far a rank can be believed, on its way to the sink."""

    sink: ClaimSink
    rank: Rank
    trust: Trust

    def __call__(self, now: float) -> bool:
        self.sink.set_trust(self.rank, self.trust, now)
        return False


class _Telling:
    """A batch on its way to the sink: a part each call. Its number goes with the last one."""

    def __init__(
        self, sink: ClaimSink, rank: Rank, batch: EventBatch, seq: int | None, max_blocks: int
    ) -> None:
        self._sink = sink
        self._rank = rank
        self._seq = seq
        self._max_blocks = max_blocks
        self._parts = parts(batch, max_blocks)
        self._next: EventBatch | None = next(self._parts)

    def __call__(self, now: float) -> bool:
        part = self._next
        assert part is not None
        if self._is_to_shrink(part, now):
            return True
        self._next = next(self._parts, None)
        is_last = self._next is None
        self._sink.apply(self._rank, part, now, self._seq if is_last else None)
        return not is_last

    def _is_to_shrink(self, part: EventBatch, now: float) -> bool:
        """Whether the part clears a medium on which there is too much for one go."""
        medium = _cleared_medium(part.events[-1]) if part.events else None
        if medium is None:
            return False
        return not self._sink.shrink(self._rank, medium, self._max_blocks, now)


def parts(batch: EventBatch, max_blocks: int) -> Iterator[EventBatch]:
    """Batches that say the same one after the other; at least one, and what was skipped with the first.

    A clear of one medium is a part of its own.
    """
    is_first, taken, num_blocks = True, list[KvEvent](), 0
    for event in batch.events:
        for piece in _pieces(event, max_blocks):
            is_clear = _cleared_medium(piece) is not None
            size = 0 if isinstance(piece, AllBlocksCleared) else len(piece.block_hashes)
            is_full = num_blocks + size > max_blocks or len(taken) >= max_blocks
            if taken and (is_clear or is_full or _cleared_medium(taken[-1]) is not None):
                yield _part(batch, taken, is_first=is_first)
                is_first, taken, num_blocks = False, [], 0
            taken.append(piece)
            num_blocks += size
    if taken or is_first:
        yield _part(batch, taken, is_first=is_first)


def _part(batch: EventBatch, events: Sequence[KvEvent], *, is_first: bool) -> EventBatch:
    return replace(batch, events=events, skipped=batch.skipped if is_first else ())


def _cleared_medium(event: KvEvent) -> str | None:
    return event.medium if isinstance(event, AllBlocksCleared) else None


def _pieces(event: KvEvent, max_blocks: int) -> Iterator[KvEvent]:
    """Events of at most so many blocks that say the same; the event itself where it cannot be cut."""
    if isinstance(event, AllBlocksCleared) or len(event.block_hashes) <= max_blocks:
        yield event
        return
    if isinstance(event, BlockStored) and not _can_be_cut(event):
        yield event
        return
    for start in range(0, len(event.block_hashes), max_blocks):
        end = min(start + max_blocks, len(event.block_hashes))
        if isinstance(event, BlockRemoved):
            yield replace(event, block_hashes=event.block_hashes[start:end])
        else:
            yield _stored_part(event, start, end)


def _can_be_cut(event: BlockStored) -> bool:
    """Whether the tokens lie evenly over the hashes, so that each block has its own."""
    num_blocks = len(event.block_hashes)
    num_tokens = num_blocks * event.block_size + event.is_eagle
    return not event.token_ids or len(event.token_ids) == num_tokens


def _stored_part(event: BlockStored, start: int, end: int) -> BlockStored:
    size, keys = event.block_size, event.extra_keys
    return replace(
        event,
        block_hashes=event.block_hashes[start:end],
        parent_hash=event.block_hashes[start - 1] if start else event.parent_hash,
        token_ids=event.token_ids[start * size : end * size + event.is_eagle],
        extra_keys=None if keys is None else keys[start:end],
    )
