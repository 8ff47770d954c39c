"""The simulated engine: one rank's scheduler around its cache, in engine time.

A discrete-event simulation that is told the time. ``step(now)`` completes every batch that has ended
by then, each at its own end, so a caller that comes late loses nothing. One device runs one batch at
a time:

    arrivals ─▶ waiting ─▶ prefill, batch by batch ─▶ running, token by token ─▶ finished
                  ▲  │ storage prefetch; room in the device pool        │
                  └──────────────── preempted, for want of a slot ◀─────┘

Events of the cache are handed over where the engine flushes them: SGLang after a prefill batch, every
``decode_log_interval`` decode steps, and when idle; vLLM after every step, and never else. Copies to host are
acknowledged between batches.

At the bounds: a request beyond ``max_waiting`` and one that can never fit are refused at ``submit``;
one that does not fit now waits, and those behind it too, until something is given back. Those preempted wait
beyond ``max_waiting``.

Source: SGLang 0.5.23 and vLLM 0.32.0 schedulers (order, chunked prefill, flush points).
"""

from worker.batch import Batch, Piece
from worker.blocks import BlockCache
from worker.engine_cache import EngineCache
from worker.engine_settings import (
    EngineCounters,
    EngineSettings,
    Flush,
    QueueFullError,
    RequestTooLargeError,
    StepResult,
)
from worker.lineup import Lineup
from worker.planner import Planner, Scheduling
from worker.request import EngineRequest, FinishReason, Sequence, TokenOutput
from worker.sampler import Sampler
from worker.scheduling import SglangScheduling, VllmScheduling
from worker.storage import Storage
from worker.tree import TreeCore
from worker.tree_cache import TreeCache


class Engine:
    """One rank. Pure but for the storage it is given; all times are engine seconds, never falling."""

    def __init__(
        self, settings: EngineSettings, sampler: Sampler, storage: Storage | None = None
    ) -> None:
        self.settings = settings
        self.counters = EngineCounters()
        self.cache, self._scheduling = _flavour(settings, storage)
        self._sampler = sampler
        self._storage = storage
        self._time = 0.0
        self._lineup = Lineup()
        self._planner = Planner(settings, self._lineup, self.cache, self._scheduling, self.counters)
        self._batch: Batch | None = None
        self._is_dirty = True
        self._is_paused = False

    def renewed(self) -> "Engine":
        """A new engine in this one's place: empty, which it says first of all, with the same settings and
        storage."""
        engine = Engine(self.settings, self._sampler, self._storage)
        if not engine.cache.num_events:
            engine.cache.reset()
        engine._is_paused = self._is_paused
        return engine

    @property
    def tree(self) -> TreeCore:
        """The tree core that the cache stands on.

        Raises:
            TypeError: it is a block pool.
        """
        if not isinstance(self.cache, TreeCache):
            raise TypeError("an engine without a tree core")
        return self.cache.tree

    @property
    def num_running(self) -> int:
        """Requests with device slots."""
        return self._lineup.num_admitted

    @property
    def num_waiting(self) -> int:
        """Requests without."""
        return self._lineup.num_waiting

    @property
    def is_idle(self) -> bool:
        """Whether there is no request, no copy in flight and nothing to flush."""
        return not self._lineup and self.cache.is_settled and not self._is_dirty

    def submit(self, request: EngineRequest, now: float) -> None:
        """Take a request; it is looked at when the running batch ends.

        Raises:
            QueueFullError: ``max_waiting`` requests wait already.
            RequestTooLargeError: it can never fit.
            ValueError: a request of this id is in the engine.
        """
        if request.request_id in self._lineup:
            raise ValueError(f"request {request.request_id} is in the engine")
        needed = self.cache.slots_needed(len(request.prompt) + request.max_new_tokens - 1)
        if needed > self.cache.capacity:
            self.counters.refused_large += 1
            raise RequestTooLargeError(
                f"prompt and answer need {needed} tokens of cache, "
                f"{self.cache.capacity} are all there is"
            )
        if self.num_waiting >= self.settings.max_waiting:
            self.counters.refused_full += 1
            raise QueueFullError(f"{self.num_waiting} requests wait already")
        answer = self._sampler.answer(request.prompt)
        self._lineup.add(Sequence(request, now, list(request.prompt), answer))
        self.counters.submitted += 1

    def cancel(self, request_id: str, now: float) -> bool:
        """End a request early: what was computed stays cached, everything else is given back.

        One whose prefill is running ends with that batch.

        Returns:
            False if no such request is in the engine.
        """
        sequence = self._lineup.get(request_id)
        if sequence is None or sequence.is_cancelled:
            return False
        self.counters.cancelled += 1
        sequence.is_cancelled = True
        if request_id not in self._lineup.prefilling:
            self._idle_until(now)
            self._end(sequence)
            self._is_dirty = True
        return True

    def flush_cache(self, now: float, *, keeps_host: bool = False) -> bool:
        """Empty the cache; False, with nothing done, while there are requests.

        Args:
            keeps_host: leave the host tier as it is, where the engine has it apart.
        """
        if self._lineup:
            return False
        self._idle_until(now)
        self.cache.reset(keeps_host=keeps_host)
        self._is_dirty = True
        return True

    def pause(self) -> None:
        """Start no further batch until ``resume``; the one that runs ends."""
        self._is_paused = True

    def resume(self, now: float) -> None:
        """Go on from here."""
        self._idle_until(now)
        self._is_paused = False
        self._is_dirty = True

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
            for sequence in self._lineup.arrived(self._time):
                self.cache.arrive(sequence, self._time)
            if self.cache.settle(self._time):
                self._planner.look_again()
            if not self._is_paused:
                self._batch = self._planner.next_batch(self._time)
            if self._batch is not None:
                continue
            upcoming = self._idle(result)
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
        self._lineup.check()
        self.cache.check()

    # ---- one scheduler round

    def _idle(self, result: StepResult) -> float | None:
        """Nothing runs: flush, and say when something next happens."""
        if self._scheduling.flushes_idle:
            self._flush(result)
        if not self._lineup:
            self._scheduling.idle()
        upcoming = self._next_due()
        is_stuck = upcoming is None and self._lineup.waiting and not self._is_paused
        assert not is_stuck, "nothing runs, and nothing fits"
        return upcoming

    def _idle_until(self, time: float) -> None:
        if self._batch is None:
            self._time = max(self._time, time)

    def _complete(self, batch: Batch, result: StepResult) -> None:
        self._batch = None
        if batch.decodes:
            self._complete_decodes(batch.decodes, result)
        if batch.pieces:
            self._complete_pieces(batch.pieces, result)
        self.cache.note(self._time)
        if batch.pieces or self.counters.decode_steps % self._scheduling.flush_interval == 0:
            self._planner.look_again()
            self._flush(result)

    def _complete_pieces(self, pieces: tuple[Piece, ...], result: StepResult) -> None:
        self.counters.prefill_steps += 1
        for piece in pieces:
            sequence = piece.sequence
            sequence.computed += piece.num_tokens
            self.counters.prefilled_tokens += piece.num_tokens
            if sequence.is_cancelled:
                self._end(sequence)
                continue
            self._lineup.prefilled(sequence)
            if sequence.num_uncomputed or not self._emit(sequence, result):
                self.cache.extend(sequence)

    def _complete_decodes(self, decodes: tuple[Sequence, ...], result: StepResult) -> None:
        self.counters.decode_steps += 1
        self._scheduling.decoded()
        for sequence in decodes:
            if sequence.id in self._lineup.running:
                sequence.computed += 1
                self._emit(sequence, result)

    def _emit(self, sequence: Sequence, result: StepResult) -> bool:
        """One token comes out; whether the answer ends with it."""
        token = next(sequence.answer)
        sequence.tokens.append(token)
        self.counters.generated_tokens += 1
        generated, length = sequence.num_generated, sequence.request.max_new_tokens
        usage = sequence.usage if generated == 1 else None
        finish = FinishReason.LENGTH if generated == length else None
        result.outputs.append(TokenOutput(sequence.id, token, self._time, usage, finish))
        if finish is not None:
            self.counters.finished += 1
            self._end(sequence)
        return finish is not None

    def _end(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        self._lineup.remove(sequence)
        self.cache.end(sequence)
        self.cache.note(self._time)
        self._planner.look_again()

    def _flush(self, result: StepResult) -> None:
        events = self.cache.take_events()
        if events:
            self.counters.flushes += 1
            result.flushes.append(Flush(self._time, events))

    def _next_due(self) -> float | None:
        """Earliest arrival or end of a transfer."""
        due = (self.cache.next_due(), self._lineup.next_arrival)
        return min((time for time in due if time is not None), default=None)


def _flavour(settings: EngineSettings, storage: Storage | None) -> tuple[EngineCache, Scheduling]:
    """Cache and rules of the engine that is simulated."""
    if settings.blocks is not None:
        return BlockCache(settings.blocks, settings.model), VllmScheduling()
    return (
        TreeCache(settings.tree, settings.model, settings.prefetch, storage),
        SglangScheduling(settings.tree.page_size, settings.decode_log_interval),
    )
