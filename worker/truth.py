"""``/debug/residency``: what each rank truly holds, walked from its tree, to compare claims with.

Hashes are the event hashes as unsigned 64-bit numbers in decimal strings, because JSON readers lose
digits of numbers beyond 2^53. ``CPU_PINNED_in_flight`` are copies issued and not acknowledged: their
slots are taken, but nothing is announced and nothing can be matched yet.

    {"ranks": [{"dp_rank": 0, "GPU": ["1786…", …], "CPU_PINNED": […], "CPU_PINNED_in_flight": […],
                "last_seq": 41, "is_idle": true, "num_running": 0, "num_waiting": 0, "events_waiting": 0,
                "gpu_capacity": 65536, "gpu_free": 61440, "host_capacity": 131072, "host_free": 126976,
                "storage_fetches_in_flight_tokens": 0, "storage_writes_staged_tokens": 0, "counters": {…}}],
     "storage": {"put": 12, "corrupt": 0, …}}

``GPU`` and ``CPU`` are those of a block pool. ``storage`` counts pages of the one storage that the ranks share; null where there is none. Where ``is_idle`` is true and no ``events_waiting`` for
a next step, as those of a block pool do, everything was flushed and published up to ``last_seq``.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from protocol import EngineHash
from worker.rank import RankRunner
from worker.ranks import RankSet


def residency(ranks: RankSet) -> dict[str, Any]:
    """The answer of ``/debug/residency``; O(pages)."""
    return {"ranks": [_rank(runner) for runner in ranks], "storage": storage_counters(ranks)}


def storage_counters(ranks: RankSet) -> dict[str, int] | None:
    """Every counter of the shared storage by name; None where there is none."""
    return asdict(ranks.storage.counters) if ranks.storage is not None else None


def counters(runner: RankRunner) -> dict[str, int]:
    """Every counter of one rank by name."""
    values: dict[str, int] = asdict(runner.engine.counters) | runner.engine.cache.counters()
    values["engine_failures"] = runner.num_failures
    if runner.publisher is not None:
        published = asdict(runner.publisher.counters)
        values |= {f"events_{name}": value for name, value in published.items()}
    return values


def _rank(runner: RankRunner) -> dict[str, Any]:
    engine = runner.engine
    held = {medium: _hashes(hashes) for medium, hashes in engine.cache.residency().items()}
    return {
        "dp_rank": runner.dp_rank,
        **held,
        "last_seq": runner.publisher.last_seq if runner.publisher is not None else None,
        "is_idle": engine.is_idle,
        "num_running": engine.num_running,
        "num_waiting": engine.num_waiting,
        "events_waiting": engine.cache.num_events,
        **engine.cache.pools(),
        "counters": counters(runner),
    }


def _hashes(hashes: Iterable[EngineHash]) -> list[str]:
    return [str(value) if isinstance(value, int) else value.hex() for value in hashes]
