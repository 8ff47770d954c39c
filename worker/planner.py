"""Composes the next batch: who goes on, who is admitted, who yields.

    SGLang   a prefill batch while there is any prompt to compute, otherwise one decode step of all
    vLLM     one token of each running answer and pieces of prompts, together

A running answer grows slot by slot. Where the pool has none left, a request is preempted: it gives back
what it holds and goes to the front of those who wait. Each admission ends in a token, and a request alone
always fits, so every request ends, however small the pool.
"""

from collections.abc import Collection
from collections.abc import Sequence as Sequences
from typing import Protocol

from worker.batch import Batch, Piece, cut_piece
from worker.engine_cache import EngineCache
from worker.engine_settings import EngineCounters, EngineSettings
from worker.lineup import Lineup
from worker.request import Sequence


class Scheduling(Protocol):
    """The rules of one engine; see ``SglangScheduling``."""

    @property
    def is_mixed(self) -> bool:
        """Whether prompts and answers share a batch."""
        ...

    @property
    def flushes_idle(self) -> bool:
        """Whether events are flushed when nothing runs."""
        ...

    @property
    def flush_interval(self) -> int:
        """Decode steps between two flushes of events."""
        ...

    @property
    def multiple(self) -> int:
        """Prompts are cut between so many tokens."""
        ...

    def headroom(self, lineup: Lineup, beside: Collection[Sequence]) -> int:
        """Slots that an admission has to leave."""
        ...

    def victim(self, lineup: Lineup) -> Sequence:
        """Who yields; one of those who run or are being prefilled."""
        ...

    def preempted(self, left: Sequences[Sequence]) -> None:
        """Requests have yielded; these go on."""
        ...

    def decoded(self) -> None:
        """A step of running answers is complete."""
        ...

    def idle(self) -> None:
        """Nothing runs and nothing waits."""
        ...


class Planner:
    """Makes the batches of one engine. Nobody is admitted after one who does not fit, until something may
    have changed (``look_again``)."""

    def __init__(
        self,
        settings: EngineSettings,
        lineup: Lineup,
        cache: EngineCache,
        scheduling: Scheduling,
        counters: EngineCounters,
    ) -> None:
        self._settings = settings
        self._lineup = lineup
        self._cache = cache
        self._scheduling = scheduling
        self._counters = counters
        self._is_blocked = False

    def look_again(self) -> None:
        """Slots may have been given back."""
        self._is_blocked = False

    def next_batch(self, now: float) -> Batch | None:
        """Compose a batch that starts now; None where nothing can run."""
        budget = max(self._settings.chunk_tokens, self._scheduling.multiple)
        before = self._counters.preempted
        if self._scheduling.is_mixed:
            decodes = self._decodes()
            has_yielded = self._counters.preempted > before
            pieces = self._pieces(budget - len(decodes), admits=not has_yielded)
        else:
            pieces = self._pieces(budget, admits=True)
            decodes = [] if pieces else self._decodes()
        self._cache.note(now)
        if self._counters.preempted > before:
            self._is_blocked = not pieces and not decodes
        if not pieces and not decodes:
            return None
        self._lineup.prefill(tuple(pieces))
        model = self._settings.model
        duration = sum(piece.duration(model) for piece in pieces)
        if decodes:
            duration += model.decode_step_s(len(decodes))
        return Batch(now + duration, tuple(pieces), tuple(decodes))

    def _decodes(self) -> list[Sequence]:
        """Everyone who runs, with a slot for the next token; those who yield for it are left out."""
        running = self._lineup.running
        before = self._counters.preempted
        plan = self._cache.plan
        for sequence in tuple(running.values()):
            while sequence.id in running and not plan(sequence, 1):
                self._preempt(self._scheduling.victim(self._lineup))
        if self._counters.preempted > before:
            self._scheduling.preempted(tuple(running.values()))
        return list(running.values())

    def _pieces(self, budget: int, *, admits: bool) -> list[Piece]:
        """The prompt that was cut goes on first; then admit, oldest first, while there is room."""
        lineup, multiple = self._lineup, self._scheduling.multiple
        pieces: list[Piece] = []
        if lineup.chunked is not None and budget >= multiple:
            pieces.append(self._piece(lineup.chunked, budget))
            budget -= pieces[0].num_tokens
        for sequence in tuple(lineup.waiting) if admits and not self._is_blocked else ():
            if budget < multiple or lineup.num_admitted >= self._settings.max_running:
                break
            if not self._cache.is_ready(sequence):
                continue
            beside = [piece.sequence for piece in pieces]
            if not self._cache.admit(sequence, self._scheduling.headroom(lineup, beside)):
                self._is_blocked = True
                break
            lineup.waiting.remove(sequence)
            self._count_admitted(sequence)
            sequence.target = len(sequence.tokens)
            pieces.append(self._piece(sequence, budget))
            budget -= pieces[-1].num_tokens
        return pieces

    def _piece(self, sequence: Sequence, budget: int) -> Piece:
        piece = cut_piece(sequence, budget, self._scheduling.multiple)
        has_slots = self._cache.plan(sequence, piece.num_tokens)
        assert has_slots, "an admitted prompt has its slots"
        return piece

    def _preempt(self, sequence: Sequence) -> None:
        self._cache.retract(sequence)
        self._lineup.preempt(sequence)
        sequence.num_preempted += 1
        self._counters.preempted += 1

    def _count_admitted(self, sequence: Sequence) -> None:
        if sequence.num_preempted:
            return
        counters, usage = self._counters, sequence.usage
        counters.prompt_tokens += usage.prompt_tokens
        counters.cached_device_tokens += usage.cached_device_tokens
        counters.cached_host_tokens += usage.cached_host_tokens
        counters.cached_storage_tokens += usage.cached_storage_tokens
