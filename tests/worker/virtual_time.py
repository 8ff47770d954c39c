"""Drives an engine in virtual time, as fast as it can be computed, and keeps what comes out."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EngineModel,
    KvEvent,
)
from worker.engine import Engine
from worker.engine_settings import EngineSettings, Flush
from worker.prefetch import PrefetchLimits
from worker.request import EngineRequest, TokenOutput, Usage
from worker.sampler import Sampler
from worker.storage import Storage
from worker.tree import EvictionPolicy, HostMode, TreeConfig, WritePolicy
from worker.tree_cache import TreeCache

MODEL = EngineModel(
    prefill_tokens_per_s=1_000.0,
    attention_doubling_tokens=math.inf,
    load_back_tokens_per_s=4_000.0,
    fetch_tokens_per_s=2_000.0,
    decode_ms=10.0,
    decode_ms_per_request=1.0,
)
"""Round numbers: a prefilled token takes 1 ms, one loaded back 0.25, one fetched 0.5."""
SAMPLER = Sampler(tuple(range(900, 910)), tuple(range(910, 990)))


def make_engine(
    *,
    page_size: int = 4,
    device_tokens: int = 64,
    host_tokens: int | None = 64,
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH,
    storage: Storage | None = None,
    prefetch: PrefetchLimits | None = None,
    announce_refills: bool = True,
    max_running: int = 64,
    max_waiting: int = 256,
    chunk_tokens: int = 8_192,
    decode_log_interval: int = 40,
    is_eagle: bool = False,
    eviction_policy: EvictionPolicy = EvictionPolicy.LRU,
    host_mode: HostMode = HostMode.CACHE,
) -> Engine:
    """An engine on round numbers."""
    tree = TreeConfig(
        page_size,
        device_tokens,
        host_tokens,
        write_policy=write_policy,
        load_back_threshold=0,
        eviction_policy=eviction_policy,
        host_mode=host_mode,
        announce_refills=announce_refills,
        is_eagle=is_eagle,
    )
    settings = EngineSettings(
        tree,
        MODEL,
        prefetch or PrefetchLimits(threshold=page_size),
        max_running,
        max_waiting,
        chunk_tokens,
        decode_log_interval,
    )
    return Engine(settings, SAMPLER, storage)


@dataclass(slots=True)
class Driver:
    """Steps an engine from wakeup to wakeup; ``check`` after each."""

    engine: Engine
    now: float = 0.0
    outputs: list[TokenOutput] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)
    num_submitted: int = 0

    @property
    def cache(self) -> TreeCache:
        """The cache of an engine that has a tree core."""
        assert isinstance(self.engine.cache, TreeCache)
        return self.engine.cache

    def submit(self, prompt: Sequence[int], max_new_tokens: int = 1) -> str:
        """Submit a prompt now; its id."""
        self.num_submitted += 1
        request = EngineRequest(f"r{self.num_submitted}", tuple(prompt), max_new_tokens)
        self.engine.submit(request, self.now)
        return request.request_id

    def advance(self) -> bool:
        """Go to the next wakeup; False where there is none."""
        wakeup = self.engine.next_wakeup(self.now)
        if wakeup is None:
            return False
        assert wakeup >= self.now
        self.step(wakeup)
        return True

    def step(self, now: float) -> None:
        """Go to a time."""
        self.now = now
        result = self.engine.step(now)
        self.outputs += result.outputs
        self.flushes += result.flushes
        self.engine.check()

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        while self.advance():
            pass
        assert self.engine.is_idle

    def serve(self, prompt: Sequence[int], max_new_tokens: int = 1) -> Usage:
        """Submit a prompt and run until idle; where its tokens came from."""
        request_id = self.submit(prompt, max_new_tokens)
        self.run()
        return self.usage(request_id)

    def usage(self, request_id: str) -> Usage:
        """Usage of a request that has its first token."""
        return next(
            output.usage
            for output in self.outputs
            if output.request_id == request_id and output.usage is not None
        )

    def times(self, request_id: str) -> list[float]:
        """When each token of a request came out, milliseconds."""
        return [round(o.at * 1e3, 6) for o in self.outputs if o.request_id == request_id]

    @property
    def events(self) -> list[KvEvent]:
        """Everything flushed so far, in order."""
        return [event for flush in self.flushes for event in flush.events]


@dataclass(slots=True)
class Claims:
    """What a listener believes, as sets; ``unknown_removals`` counts what it never heard stored, ``heard`` what it
    heard stored, by medium."""

    held: dict[str, set[EngineHash]] = field(
        default_factory=lambda: {"GPU": set(), "CPU_PINNED": set()}
    )
    unknown_removals: int = 0
    heard: Counter[str] = field(default_factory=Counter)

    def fold(self, events: Sequence[KvEvent]) -> "Claims":
        """Apply events in order."""
        for event in events:
            match event:
                case BlockStored():
                    self.held[event.medium or "GPU"].update(event.block_hashes)
                    self.heard[event.medium or "GPU"] += len(event.block_hashes)
                case BlockRemoved():
                    blocks = self.held[event.medium or "GPU"]
                    self.unknown_removals += len(set(event.block_hashes) - blocks)
                    blocks.difference_update(event.block_hashes)
                case AllBlocksCleared():
                    self.held = {medium: set() for medium in self.held}
        return self


def truth(engine: Engine) -> dict[str, set[EngineHash]]:
    """What the engine holds, as a listener would know it."""
    residency = engine.tree.residency()
    return {"GPU": set(residency.device), "CPU_PINNED": set(residency.host)}


def prompt_of(number: int, length: int) -> list[int]:
    """A prompt that shares nothing with those of other numbers."""
    return [10_000 * (number + 1) + i for i in range(length)]
