"""Restarts in place, as a worker's event streams tell them: sooner than the worker describes itself anew."""

from collections.abc import Mapping

from indexer.intake import Intake
from indexer.same_cache import is_next_process
from protocol import Rank, WorkerSpec


def count_restarts(intake: Intake, spec: WorkerSpec) -> Mapping[Rank, int]:
    """Restarts noticed so far, of each rank that was heard; O(ranks)."""
    resets = intake.resets(spec.worker)
    return {Rank(spec.worker, r): resets[r] for r in spec.dp_ranks if r in resets}


def is_heard_already(
    old: WorkerSpec, new: WorkerSpec, before: Mapping[Rank, int], after: Mapping[Rank, int]
) -> bool:
    """Is what is claimed of the process that now describes itself differently?

    Args:
        before: restarts at the time of the old description; after: now.
    """
    has_restarted = all(count > before.get(rank, 0) for rank, count in after.items())
    return bool(after) and has_restarted and is_next_process(old, new)
