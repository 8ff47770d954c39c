"""A small fleet whose ranks share storage pools."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from indexer.fleet_index import FleetIndex
from indexer.limits import IndexLimits
from indexer.pool_book import PoolState
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from protocol import (
    BlockStored,
    EngineHash,
    EngineKind,
    EventBatch,
    KvEvent,
    PoolName,
    Rank,
    StoragePool,
    StorageUse,
    WorkerSpec,
    pool_source,
)
from tests.indexer.small_fleet import (
    DEFAULT_LIMITS,
    SIZE,
    SmallFleet,
    blocks,
    names,
    prompt,
    worker_spec,
)

NAME = PoolName("l3")
SPEAKS = StorageRules(speaking=frozenset({NAME}))
INFERS = StorageRules(infers=True, inferred_ttl_s=60.0)
TOKENS = blocks(1, 100)  # beyond the prefetch threshold of 256 tokens
HASHES = names(0, 100)
PROMPT = [*TOKENS, 7]


def pool(name: str | None = "l3", **fields: Any) -> StoragePool:
    named = None if name is None else PoolName(name)
    address = "10.0.0.9:1" if name is None else None
    return replace(StoragePool(named, "mooncake", address, "m", "tp1", ""), **fields)


def user(name: str, of: StoragePool | None = None, **fields: Any) -> WorkerSpec:
    """A worker of an engine that writes through to a pool."""
    use = StorageUse(pool() if of is None else of, writes_through=True)
    return worker_spec(
        name, **{"engine": EngineKind.SGLANG, "version": "0.5.23", "storage": use} | fields
    )


class PooledFleet(SmallFleet):
    """A fleet whose pools can be told things, too."""

    def __init__(
        self, *workers: WorkerSpec, rules: StorageRules, limits: IndexLimits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(limits=limits)
        self.index = FleetIndex(limits, rules)
        for worker in workers:
            self.add(worker)

    def tell(self, *events: KvEvent, name: PoolName = NAME) -> None:
        """The pool's own events."""
        self.index.apply(Rank(pool_source(name)), EventBatch(0.0, events), self.now)
        self.index.check()

    def source(self, worker: str, tokens: Iterable[int] = PROMPT) -> StorageSource | None:
        return self.match(worker, prompt(tokens)).storage_source

    def pool(self) -> PoolState:
        (state,) = self.index.pool_states()
        return state


def pooled(hashes: Sequence[EngineHash], medium: str = "cpu", **fields: Any) -> BlockStored:
    """As Mooncake's master says it: by hash alone."""
    return replace(BlockStored(hashes, None, (), SIZE, medium), **fields)
