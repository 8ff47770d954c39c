"""What storage credit rests on, the firmest first."""

from enum import StrEnum

from indexer.prefix_walk import Run


class StorageSource(StrEnum):
    """How it is known that blocks are in storage.

    ANNOUNCED: the rank, or another one attached to the same pool, announced them.
    POOL_EVENTS: the pool's own events say so.
    INFERRED: a rank copied them to host memory, and its engine writes such copies through to the pool.
    """

    ANNOUNCED = "announced"
    POOL_EVENTS = "pool_events"
    INFERRED = "inferred"


def source_of(run: Run) -> StorageSource | None:
    """The weakest that any of a run's storage blocks rests on; None where it has none."""
    if run.inferred:
        return StorageSource.INFERRED
    if run.pooled:
        return StorageSource.POOL_EVENTS
    return StorageSource.ANNOUNCED if run.storage else None
