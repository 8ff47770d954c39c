"""A fleet of one-line stimuli: ranks by name, prompts as token lists, events as they come off the wire."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from indexer.fleet_index import FleetIndex
from indexer.limits import IndexLimits
from indexer.match import Prompt, RankMatch
from indexer.rank_state import RankState
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    EventSource,
    KvEvent,
    Rank,
    WorkerId,
    WorkerSpec,
    pack_tokens,
)

SIZE = 4
DEFAULT_LIMITS = IndexLimits()


def worker_spec(name: str, **fields: Any) -> WorkerSpec:
    """A worker with one event source that can be replayed."""
    rank = Rank(WorkerId(name))
    source = EventSource(rank, f"tcp://{name}:5557", f"tcp://{name}:6557")
    spec = WorkerSpec(rank.worker, f"http://{name}", "m", block_size=SIZE, sources=(source,))
    return replace(spec, **fields)


def prompt(
    tokens: Iterable[int], model: str = "m", adapter: str | None = None, salt: str | None = None
) -> Prompt:
    return Prompt(pack_tokens(list(tokens)), model, adapter, salt)


def blocks(first: int, count: int, size: int = SIZE) -> list[int]:
    """Tokens of ``count`` blocks whose tokens start at ``first``."""
    return list(range(first, first + count * size))


def names(first: int, count: int) -> list[EngineHash]:
    """Engine hashes, arbitrary."""
    return [0xABC0_0000 + first + i for i in range(count)]


class SmallFleet:
    """A fleet index with workers by name, all at rank 0 unless said otherwise, and a clock."""

    def __init__(
        self,
        *workers: str | WorkerSpec,
        trust: Trust = Trust.EXACT,
        limits: IndexLimits = DEFAULT_LIMITS,
    ) -> None:
        self.now = 100.0
        self.limits = limits
        self.index = FleetIndex(limits)
        for worker in workers:
            self.add(worker, trust=trust)

    def add(self, worker: str | WorkerSpec, trust: Trust = Trust.EXACT) -> None:
        spec = worker_spec(worker) if isinstance(worker, str) else worker
        self.index.add_worker(spec, self.now)
        for rank in spec.ranks:
            self.index.set_trust(rank, trust, self.now)

    def apply(self, worker: str, *events: KvEvent) -> None:
        self.index.apply(rank(worker), EventBatch(0.0, events), self.now)
        self.index.check()

    def store(
        self,
        worker: str,
        hashes: Sequence[EngineHash],
        tokens: Sequence[int],
        parent: EngineHash | None = None,
        medium: str | None = "GPU",
        **fields: Any,
    ) -> None:
        size = len(tokens) // len(hashes) if hashes else 0
        event = BlockStored(hashes, parent, tokens, size, medium)
        self.apply(worker, replace(event, **fields))

    def remove(
        self,
        worker: str,
        hashes: Sequence[EngineHash],
        medium: str | None = "GPU",
        group_idx: int | None = None,
    ) -> None:
        self.apply(worker, BlockRemoved(hashes, medium, group_idx))

    def clear(self, worker: str, medium: str | None = None) -> None:
        self.apply(worker, AllBlocksCleared(medium))

    def match(self, worker: str, prompt: Prompt) -> RankMatch:
        (match,) = self.index.match(prompt, [rank(worker)], self.now)
        return match

    def run(self, worker: str, prompt: Prompt) -> tuple[int, int, int]:
        """GPU, host and storage blocks of the match."""
        match = self.match(worker, prompt)
        return match.gpu_blocks, match.host_pinned_blocks, match.storage_blocks

    def serve(
        self,
        worker: str,
        prompt: Prompt,
        cached_tokens: int | None = None,
        events: Sequence[KvEvent] = (),
        takes_s: float = 0.5,
    ) -> RankMatch:
        """One request from plan to end; the events are heard before its first token."""
        at_decision, decided_at = self.match(worker, prompt), self.now
        self.index.predict(rank(worker), prompt, self.now)
        self.now += takes_s
        if events:
            self.apply(worker, *events)
        self.index.observe(rank(worker), prompt, self.now)
        self.index.report(rank(worker), prompt, cached_tokens, at_decision, decided_at, self.now)
        self.index.check()
        return at_decision

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.index.tick(self.now)
        self.index.check()

    def state(self, worker: str) -> RankState:
        return next(s for s in self.index.rank_states(self.now) if s.rank == rank(worker))

    def trust(self, worker: str) -> Trust:
        return self.index.trust(rank(worker), self.now)

    def findings(self) -> dict[str, dict[str, object]]:
        """Evidence by kind."""
        return {f.kind.value: dict(f.evidence) for f in self.index.findings(self.now)}


def rank(worker: str) -> Rank:
    return Rank(WorkerId(worker))
