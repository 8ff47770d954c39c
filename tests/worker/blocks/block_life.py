"""An engine of the vLLM flavour in virtual time, and a listener that counts copies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash, KvEvent
from tests.worker.virtual_time import MODEL, SAMPLER, Driver
from worker.blocks import BlockConfig
from worker.engine import Engine
from worker.engine_settings import EngineSettings
from worker.tree import TreeConfig


def make_block_engine(
    *,
    block_size: int = 4,
    num_blocks: int = 16,
    offload_tokens: int | None = None,
    offload_blocks: int = 1,
    is_self_describing: bool = False,
    has_byte_hashes: bool = False,
    max_running: int = 64,
    chunk_tokens: int = 8_192,
) -> Engine:
    """An engine on round numbers."""
    blocks = BlockConfig(
        block_size,
        num_blocks * block_size,
        offload_tokens,
        offload_blocks,
        is_self_describing,
        has_byte_hashes,
        adapters=("ad1", "ad2"),
    )
    settings = EngineSettings(
        TreeConfig(block_size, 0),
        MODEL,
        max_running=max_running,
        chunk_tokens=chunk_tokens,
        blocks=blocks,
    )
    return Engine(settings, SAMPLER)


@dataclass(slots=True)
class Copies:
    """What a listener believes that counts copies; removals never take it below none."""

    held: Counter[tuple[str | None, EngineHash]] = field(default_factory=Counter)

    def fold(self, events: Sequence[KvEvent]) -> "Copies":
        """Apply events in order."""
        for event in events:
            match event:
                case BlockStored():
                    self.held.update((event.medium, one) for one in event.block_hashes)
                case BlockRemoved():
                    for one in event.block_hashes:
                        self.held[event.medium, one] -= 1
                        assert self.held[event.medium, one] >= 0, "removed, never stored"
                case AllBlocksCleared():
                    self.held.clear()
        return self

    def hashes(self) -> dict[str, set[EngineHash]]:
        """Believed to be there, by medium."""
        held: dict[str, set[EngineHash]] = {"GPU": set(), "CPU": set()}
        for (medium, one), count in self.held.items():
            if count:
                held[medium or "GPU"].add(one)
        return held


def all_events(driver: Driver) -> list[KvEvent]:
    """Everything announced so far, and what waits for the next step."""
    return [*driver.events, *driver.engine.cache.take_events()]


def block_truth(engine: Engine) -> dict[str, set[EngineHash]]:
    """What the engine holds."""
    return {medium: set(hashes) for medium, hashes in engine.cache.residency().items()}


def shape(driver: Driver) -> list[str]:
    """Every flush in a line: media, signs and numbers of blocks."""
    lines = []
    for flush in driver.flushes:
        words = []
        for event in flush.events:
            match event:
                case BlockStored():
                    words.append(f"+{event.medium}:{len(event.block_hashes)}")
                case BlockRemoved():
                    words.append(f"-{event.medium}:{len(event.block_hashes)}")
                case AllBlocksCleared():
                    words.append("clear")
        lines.append(" ".join(words))
    return lines
