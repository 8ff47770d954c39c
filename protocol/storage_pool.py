"""Storage pools: what several ranks write to and fetch from, as a value that tells one pool from another.

Two workers share a pool if, and only if, what is known of theirs is equal. What is not known to be shared is
not: a directory on one's own machine, an address that only the engine's environment knows.
"""

from dataclasses import dataclass
from typing import NewType

from xxhash import xxh3_64_hexdigest

from protocol.ids import WorkerId

PoolName = NewType("PoolName", str)
"""A pool as the operator names it."""

DEFAULT_PREFETCH_THRESHOLD = 256
"""Tokens; engines do not fetch shorter hits. Source: SGLang 0.5.23, ``prefetch_threshold``."""


@dataclass(frozen=True, slots=True)
class StoragePool:
    """One pool.

    Attributes:
        name: the operator's; None for a pool that engines tell of alone.
        backend: the engine's word for what it is; None where it says nothing.
        address: where it is; None where a name stands for it.
        model: the name that requests use.
        layout: how a block is cut into pages and shards; other layouts cannot read it.
        namespace: digest of all else that its keys depend on: weights, tenants.
    """

    name: PoolName | None
    backend: str | None
    address: str | None
    model: str
    layout: str
    namespace: str

    @property
    def is_shared(self) -> bool:
        """Whether it is known where it is: without that nobody else is known to share it."""
        return self.name is not None or self.address is not None

    @property
    def label(self) -> str:
        """A short name that no other pool has."""
        parts = (self.name, self.backend, self.address, self.model, self.layout, self.namespace)
        return (
            f"{self.name or self.backend or 'pool'}-{xxh3_64_hexdigest(repr(parts).encode())[:8]}"
        )


@dataclass(frozen=True, slots=True)
class StorageUse:
    """What one worker does with a pool.

    Attributes:
        writes_through: whatever it copies to host memory it copies on to the pool.
    """

    pool: StoragePool
    writes_through: bool = False


def pool_key(pool: StoragePool) -> WorkerId:
    """What a pool is asked for by: the id of its source, or one like it where it has no name."""
    return pool_source(pool.name or PoolName(pool.label))


def pool_source(name: PoolName) -> WorkerId:
    """The id under which a pool's own events are heard; no worker has it, for names have no slash."""
    return WorkerId(f"pool/{name}")
