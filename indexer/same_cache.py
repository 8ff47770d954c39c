"""Is the cache behind a worker still the same one after its description has changed?

A process that comes back with another version or block size is heard before it is described anew: where its streams
told of the restart, what was claimed since is already its own.
"""

from indexer.engine_version import are_events_believed
from protocol import WorkerSpec


def is_same_cache(before: WorkerSpec, after: WorkerSpec) -> bool:
    """Whether what was claimed under one description of a worker stands under the other.

    Names (aliases, adapters) change while an engine runs; anything else means another process, with
    another cache. A version or block size that is not known is no other one.
    """
    return (
        _is_same_place(before, after)
        and _may_be_equal(before.version, after.version)
        and _may_be_equal(before.block_size, after.block_size)
    )


def is_next_process(before: WorkerSpec, after: WorkerSpec) -> bool:
    """Whether a restart in place explains all that differs, and events of both processes count alike."""
    believed = are_events_believed(before.engine, before.version)
    return _is_same_place(before, after) and believed is are_events_believed(
        after.engine, after.version
    )


def _is_same_place(before: WorkerSpec, after: WorkerSpec) -> bool:
    place = (before.url, before.model, before.engine, before.sources, before.dp_ranks)
    return place == (after.url, after.model, after.engine, after.sources, after.dp_ranks)


def _may_be_equal(before: object, after: object) -> bool:
    return before is None or after is None or before == after
