"""Has the index of a worker got as far as its event streams bring it?"""

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.trust import Trust
from protocol import EventSource, WorkerSpec


def is_recovered(spec: WorkerSpec, intake: Intake, index: FleetIndex, now: float) -> bool:
    """Is each of its streams heard, and what can be replayed applied? True without streams."""
    return all(_is_heard(source, intake, index, now) for source in spec.sources)


def _is_heard(source: EventSource, intake: Intake, index: FleetIndex, now: float) -> bool:
    if source.replay_endpoint is None:
        return intake.is_connected(source)
    return index.trust(source.rank, now) not in (Trust.NONE, Trust.REBUILDING)
