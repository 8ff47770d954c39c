"""The simulated engine: one rank's scheduler over the tree core, in engine time.

A discrete-event simulation that is told the time. ``step(now)`` completes every batch that has ended
by then, each at its own end, so a caller that comes late loses nothing. One device runs one batch at
a time, and prefill goes before decode, so prefill work delays the running answers:

    arrivals ─▶ waiting ─▶ prefill batch(es) ─▶ decode batch, step by step ─▶ finished
                  │ storage prefetch; room in the device pool

Events of the tree are handed over where SGLang flushes them: after a prefill batch, every
``decode_log_interval`` decode steps, and when idle. Copies to host are acknowledged between batches.

At the bounds: a request beyond ``max_waiting`` and one that can never fit are refused at ``submit``;
one that does not fit now waits, and those behind it too, until something is given back.

Source: SGLang 0.5.23 scheduler (order, chunked prefill, flush points).
"""

from collections import deque
from dataclasses import dataclass

from worker.backups import BackupQueue
from worker.engine_settings import (
    EngineCounters,
    EngineSettings,
    Flush,
    QueueFullError,
    RequestTooLargeError,
    StepResult,
)
from worker.prefetch import Prefetcher
from worker.request import EngineRequest, FinishReason, Sequence, TokenOutput
from worker.sampler import Sampler
from worker.sequence_cache import SequenceCache
from worker.storage import Storage
from worker.tree import TreeCore


@dataclass(frozen=True, slots=True)
class _Piece:
    """Uncached prompt tokens of one sequence in a prefill batch."""

    sequence: Sequence
    num_tokens: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the device is busy with until ``ends_at``; no pieces = a decode step."""

    ends_at: float
    pieces: tuple[_Piece, ...] = ()


class Engine:
    """One rank. Pure but for the storage it is given; all times are engine seconds, never falling."""

    def __init__(
        self, settings: EngineSettings, sampler: Sampler, storage: Storage | None = None
    ) -> None:
        self.settings = settings
        self.counters = EngineCounters()
        self.tree = TreeCore(settings.tree)
        self.prefetcher: Prefetcher | None = None
        if storage is not None and settings.tree.has_host_tier:
            self.prefetcher = Prefetcher(self.tree, storage, settings.model, settings.prefetch)
        self.backups = BackupQueue(self.tree, storage, settings.model)
        self._cache = SequenceCache(self.tree)
        self._sampler = sampler
        self._storage = storage
        self._time = 0.0
        self._sequences: dict[str, Sequence] = {}
        self._arrivals: deque[Sequence] = deque()
        self._waiting: deque[Sequence] = deque()
        self._running: dict[str, Sequence] = {}
        self._chunked: Sequence | None = None
        self._batch: _Batch | None = None
        self._is_blocked = False
        self._is_dirty = True

    def renewed(self) -> "Engine":
        """A new engine in this one's place: empty, with the same settings and storage."""
        return Engine(self.settings, self._sampler, self._storage)

    @property
    def num_running(self) -> int:
        """Requests with device slots."""
        return len(self._sequences) - self.num_waiting

    @property
    def num_waiting(self) -> int:
        """Requests without."""
        return len(self._arrivals) + len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether there is no request, no copy in flight and nothing to flush."""
        return not self._sequences and not self.backups and not self._is_dirty

    def submit(self, request: EngineRequest, now: float) -> None:
        """Take a request; it is looked at when the running batch ends.

        Raises:
            QueueFullError: ``max_waiting`` requests wait already.
            RequestTooLargeError: it can never fit.
            ValueError: a request of this id is in the engine.
        """
        if request.request_id in self._sequences:
            raise ValueError(f"request {request.request_id} is in the engine")
        needed = self._cache.slots_needed(len(request.prompt), request.max_new_tokens)
        if needed > self._cache.capacity:
            self.counters.refused_large += 1
            raise RequestTooLargeError(
                f"prompt and answer need {needed} tokens of cache, "
                f"{self._cache.capacity} are all there is"
            )
        if self.num_waiting >= self.settings.max_waiting:
            self.counters.refused_full += 1
            raise QueueFullError(f"{self.num_waiting} requests wait already")
        answer = self._sampler.answer(request.prompt)
        sequence = Sequence(request, now, list(request.prompt), answer)
        self._sequences[request.request_id] = sequence
        self._arrivals.append(sequence)
        self.counters.submitted += 1

    def cancel(self, request_id: str, now: float) -> bool:
        """End a request early: what was computed stays cached, everything else is given back.

        One whose prefill is running ends with that batch.

        Returns:
            False if no such request is in the engine.
        """
        sequence = self._sequences.get(request_id)
        if sequence is None or sequence.is_cancelled:
            return False
        self.counters.cancelled += 1
        sequence.is_cancelled = True
        if sequence not in self._prefilling():
            self._idle_until(now)
            self._end(sequence)
            self._is_dirty = True
        return True

    def flush_cache(self, now: float) -> bool:
        """Empty the cache; False, with nothing done, while there are requests."""
        if self._sequences:
            return False
        self._idle_until(now)
        self.tree.reset()
        self.backups.clear()
        self._is_dirty = True
        return True

    def step(self, now: float) -> StepResult:
        """Let everything happen that happens by ``now``."""
        result = StepResult()
        self._is_dirty = False
        while True:
            if self._batch is not None:
                if self._batch.ends_at > now:
                    break
                self._time = self._batch.ends_at
                self._complete(self._batch, result)
            self._take_arrivals()
            self._settle_transfers()
            self._batch = self._next_batch()
            if self._batch is not None:
                continue
            self._flush(result)
            upcoming = self._next_due()
            assert upcoming is not None or not self._waiting, "nothing runs, and nothing fits"
            if upcoming is None or upcoming > now:
                break
            self._idle_until(upcoming)
        return result

    def next_wakeup(self, now: float) -> float | None:
        """When ``step`` is to be called next; None = not before a ``submit``."""
        if self._is_dirty:
            return now
        return self._batch.ends_at if self._batch is not None else self._next_due()

    def check(self) -> None:
        """Verify the invariants of the engine and of all it holds; O(pages)."""
        self.tree.check()
        self.backups.check()
        if self.prefetcher is not None:
            self.prefetcher.check()
        placed = [*self._arrivals, *self._waiting, *self._running.values()]
        placed += [s for s in self._prefilling() if s.request.request_id not in self._running]
        ids = [sequence.request.request_id for sequence in placed]
        assert sorted(ids) == sorted(self._sequences), f"{ids} are not {list(self._sequences)}"
        holders = [sequence for sequence in placed if sequence.node is not None]
        assert len(holders) == self.num_running, "a waiting request holds slots"
        self._check_pools(sum(sequence.owned_tokens for sequence in placed))

    def _check_pools(self, owned: int) -> None:
        """Every slot in use is a page of the tree or belongs to a request or a fetch."""
        tree, page_size = self.tree, self.settings.tree.page_size
        residency = tree.residency()
        cached = len(residency.device) * page_size
        assert owned + cached == tree.device.held, (owned, cached, tree.device.held)
        if tree.host is not None:
            cached = (len(residency.host) + len(residency.host_in_flight)) * page_size
            fetching = self.prefetcher.in_flight_tokens if self.prefetcher is not None else 0
            assert fetching + cached == tree.host.held, (fetching, cached, tree.host.held)

    # ---- one scheduler round

    def _idle_until(self, time: float) -> None:
        if self._batch is None:
            self._time = max(self._time, time)

    def _take_arrivals(self) -> None:
        while self._arrivals and self._arrivals[0].arrived_at <= self._time:
            sequence = self._arrivals.popleft()
            if self.prefetcher is not None:
                key = sequence.key(sequence.num_prompt)
                sequence.prefetch = self.prefetcher.issue(key, self._time)
            self._waiting.append(sequence)

    def _settle_transfers(self) -> None:
        if self.backups.acknowledge_due(self._time):
            self._is_blocked = False
        prefetcher = self.prefetcher
        if prefetcher is None:
            return
        for sequence in self._waiting:
            prefetch = sequence.prefetch
            if prefetch is not None and prefetcher.is_due(prefetch, self._time):
                sequence.refilled_tokens = prefetcher.settle(prefetch, self._time)
                sequence.prefetch = None
                self._is_blocked = False

    def _next_batch(self) -> _Batch | None:
        pieces = self._prefill_pieces()
        model = self.settings.model
        if pieces:
            duration = sum(self._duration(piece) for piece in pieces)
            return _Batch(self._time + duration, tuple(pieces))
        if self._running:
            return _Batch(self._time + model.decode_step_s(len(self._running)))
        return None

    def _prefill_pieces(self) -> list[_Piece]:
        """The prompt that was cut goes on first; then admit, oldest first, while there is room."""
        page_size = self.settings.tree.page_size
        budget = max(self.settings.chunk_tokens, page_size)
        pieces: list[_Piece] = []
        if self._chunked is not None:
            pieces.append(_piece(self._chunked, budget, page_size))
            budget -= pieces[0].num_tokens
        for sequence in () if self._is_blocked else tuple(self._waiting):
            if budget < page_size or self.num_running >= self.settings.max_running:
                break
            if sequence.prefetch is not None:
                continue
            if not self._cache.admit(sequence):
                self._is_blocked = True
                break
            self._waiting.remove(sequence)
            self._count_admitted(sequence)
            pieces.append(_piece(sequence, budget, page_size))
            budget -= pieces[-1].num_tokens
        self.backups.note(self._time)
        return pieces

    def _duration(self, piece: _Piece) -> float:
        model, sequence = self.settings.model, piece.sequence
        load_back = sequence.load_back
        copied = model.load_back_s(load_back.num_tokens) if load_back is not None else 0.0
        return copied + model.prefill_s(piece.num_tokens, sequence.computed)

    def _complete(self, batch: _Batch, result: StepResult) -> None:
        self._batch = None
        if batch.pieces:
            self._complete_prefill(batch.pieces, result)
        else:
            self._complete_decode(result)

    def _complete_prefill(self, pieces: tuple[_Piece, ...], result: StepResult) -> None:
        self._chunked = None
        self._is_blocked = False
        self.counters.prefill_steps += 1
        for piece in pieces:
            sequence = piece.sequence
            self._cache.finish_load_back(sequence)
            sequence.computed += piece.num_tokens
            self.counters.prefilled_tokens += piece.num_tokens
            if sequence.is_cancelled:
                self._end(sequence)
            elif sequence.num_uncomputed > 0:
                self._cache.extend(sequence)
                self._chunked = sequence
            else:
                self._running[sequence.request.request_id] = sequence
                self._emit(sequence, result)
        self.backups.note(self._time)
        self._flush(result)

    def _complete_decode(self, result: StepResult) -> None:
        self.counters.decode_steps += 1
        for sequence in tuple(self._running.values()):
            sequence.computed += 1
            self._emit(sequence, result)
        if self.counters.decode_steps % self.settings.decode_log_interval == 0:
            self._flush(result)

    def _emit(self, sequence: Sequence, result: StepResult) -> None:
        """One token comes out; the answer ends with it, or the prompt's pages are cached."""
        token = next(sequence.answer)
        is_first = len(sequence.tokens) == sequence.num_prompt
        sequence.tokens.append(token)
        self.counters.generated_tokens += 1
        finish = FinishReason.LENGTH if sequence.is_complete else None
        usage = sequence.usage if is_first else None
        output = TokenOutput(sequence.request.request_id, token, self._time, usage, finish)
        result.outputs.append(output)
        if finish is not None:
            self.counters.finished += 1
            self._end(sequence)
        elif is_first:
            self._cache.extend(sequence)

    def _end(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        request_id = sequence.request.request_id
        del self._sequences[request_id]
        if self._running.pop(request_id, None) is None:
            for queue in (self._arrivals, self._waiting):
                if sequence in queue:
                    queue.remove(sequence)
        if sequence.prefetch is not None and self.prefetcher is not None:
            self.prefetcher.drop(sequence.prefetch)
            sequence.prefetch = None
        self._cache.end(sequence)
        self.backups.note(self._time)
        self._is_blocked = False

    def _flush(self, result: StepResult) -> None:
        events = self.tree.take_events()
        if events:
            self.counters.flushes += 1
            result.flushes.append(Flush(self._time, events))

    def _next_due(self) -> float | None:
        """Earliest arrival or end of a transfer."""
        due = [self.backups.next_due()]
        if self._arrivals:
            due.append(self._arrivals[0].arrived_at)
        if self.prefetcher is not None:
            due.append(self.prefetcher.next_due())
        return min((time for time in due if time is not None), default=None)

    def _prefilling(self) -> list[Sequence]:
        return [piece.sequence for piece in self._batch.pieces] if self._batch is not None else []

    def _count_admitted(self, sequence: Sequence) -> None:
        counters, usage = self.counters, sequence.usage
        counters.prompt_tokens += usage.prompt_tokens
        counters.cached_device_tokens += usage.cached_device_tokens
        counters.cached_host_tokens += usage.cached_host_tokens
        counters.cached_storage_tokens += usage.cached_storage_tokens


def _piece(sequence: Sequence, budget: int, page_size: int) -> _Piece:
    """As much of a prompt as the budget allows; a prompt is cut between pages."""
    if sequence.num_uncomputed <= budget:
        return _Piece(sequence, sequence.num_uncomputed)
    return _Piece(sequence, budget // page_size * page_size)
