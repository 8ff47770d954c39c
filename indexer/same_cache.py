"""Is the cache behind a worker still the same one after its description has changed?"""

from protocol import WorkerSpec


def is_same_cache(before: WorkerSpec, after: WorkerSpec) -> bool:
    """Whether what was claimed under one description of a worker stands under the other.

    Names (aliases, adapters) change while an engine runs; anything else means another process, with
    another cache. A version or block size that is not known is no other one.
    """
    return (
        (before.url, before.model, before.engine, before.sources, before.num_ranks)
        == (after.url, after.model, after.engine, after.sources, after.num_ranks)
        and _may_be_equal(before.version, after.version)
        and _may_be_equal(before.block_size, after.block_size)
    )


def _may_be_equal(before: object, after: object) -> bool:
    return before is None or after is None or before == after
