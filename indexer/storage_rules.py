"""What the operator lets be believed of storage pools."""

from dataclasses import dataclass

from protocol import PoolName


@dataclass(frozen=True, slots=True)
class StorageRules:
    """Bounds and choices for all pools.

    Attributes:
        infers: a copy in host memory of an engine that writes through counts as one in the pool.
        inferred_ttl_s: a copy that is inferred counts for so long, and anew whenever it is inferred again.
        max_inferred: inferred blocks of one pool; beyond it the oldest go.
        speaking: pools whose own events are heard.
    """

    infers: bool = False
    inferred_ttl_s: float = 3_600.0
    max_inferred: int = 262_144
    speaking: frozenset[PoolName] = frozenset()
