"""An engine small enough to be read at a glance, for what only traffic shows.

GPU and host pools of whole blocks with write-through and LRU eviction of leaves, a shared store that
keeps everything, refills from it into host memory, load-back, answers that are cached as well. Events lie
in a queue until they are flushed, as engines do it. A block is the tuple of letters up to its end.
"""

from collections.abc import Iterable, Sequence

from protocol import BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent

SIZE = 16
Path = tuple[int, ...]


def tokens_of(path: Path) -> list[int]:
    return [letter * SIZE + i for letter in path for i in range(SIZE)]


def engine_hash(path: Path) -> EngineHash:
    return hash(path) & (1 << 64) - 1


class ToyEngine:
    """One rank. ``announces_refills`` False is the fault: refills into host memory are silent."""

    def __init__(
        self, storage: set[Path], gpu_blocks: int, host_blocks: int, *, announces_refills: bool
    ) -> None:
        self.storage = storage
        self.gpu: dict[Path, int] = {}
        self.host: dict[Path, int] = {}
        self.refilled = 0
        self._sizes = (gpu_blocks, host_blocks)
        self._announces_refills = announces_refills
        self._clock = 0
        self._locked: list[Path] = []
        self._events: list[KvEvent] = []

    def admit(self, path: Path) -> int:
        """Bring a prompt onto GPU; returns the blocks that were reused (the last is always computed)."""
        self._clock += 1
        chain = [path[: i + 1] for i in range(len(path))]
        held = self._run(chain, self.gpu, self.host)
        missing = chain[held : self._run(chain, self.gpu, self.host, self.storage)]
        if missing:
            self.refilled += len(missing)
            self._keep(self.host, missing)
            if self._announces_refills:
                self._store(missing, "CPU_PINNED")
        reused = self._run(chain[:-1], self.gpu, self.host)
        self._locked.append(path)
        fresh = [block for block in chain if block not in self.gpu]
        self._keep(self.gpu, chain)
        self._store(fresh, "GPU")
        return reused

    def finish(self, path: Path, answer: Path) -> None:
        """Cache prompt and answer, copy them to host and storage, and let pools shrink."""
        self._clock += 1
        chain = [(path + answer)[: i + 1] for i in range(len(path + answer))]
        self._store([block for block in chain if block not in self.gpu], "GPU")
        self._keep(self.gpu, chain)
        self._locked.remove(path)
        copied = [block for block in chain if block not in self.host]
        self._keep(self.host, chain)
        self._store(copied, "CPU_PINNED")
        self.storage.update(chain)
        self._shrink(self.gpu, self._sizes[0], "GPU", keep=set())
        self._shrink(self.host, self._sizes[1], "CPU_PINNED", keep=set(self.gpu))

    def flush(self) -> EventBatch | None:
        """Everything that was queued since the last time."""
        if not self._events:
            return None
        batch, self._events = EventBatch(0.0, self._events), []
        return batch

    def _run(self, chain: Sequence[Path], *tiers: Iterable[Path]) -> int:
        held = 0
        while held < len(chain) and any(chain[held] in tier for tier in tiers):
            held += 1
        return held

    def _keep(self, pool: dict[Path, int], blocks: Iterable[Path]) -> None:
        for block in blocks:
            pool[block] = self._clock

    def _shrink(self, pool: dict[Path, int], size: int, medium: str, keep: set[Path]) -> None:
        locked = {path[: i + 1] for path in self._locked for i in range(len(path))}
        while len(pool) > size:
            inner = {block[:-1] for block in pool}
            leaves = [b for b in pool if b not in inner and b not in locked and b not in keep]
            if not leaves:
                return
            victim = min(leaves, key=pool.__getitem__)
            del pool[victim]
            self._events.append(BlockRemoved([engine_hash(victim)], medium))

    def _store(self, blocks: Iterable[Path], medium: str) -> None:
        for block in blocks:
            parent = engine_hash(block[:-1]) if len(block) > 1 else None
            tokens = tokens_of(block[-1:])
            self._events.append(BlockStored([engine_hash(block)], parent, tokens, SIZE, medium))
