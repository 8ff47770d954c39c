"""Speeds: how fast each worker really prefills, learned from first-token times.

One sample is the time that the engine model expects of a prefill ÷ the time that passed until the
first token. A worker's speed is the median of its last samples, so that a stall, a cold start or a
wrong claim does not move it. Workers of one model are pooled:

    pooled speed = median over the workers of their medians
    used speed   = pooled · STEP^k,   k the whole number nearest to log_STEP(own ÷ pooled)

Equal machines differ by noise alone; they all get k = 0 and so equal costs and true ties. A machine
of another kind is some steps away.

A worker says nothing before `MIN_SAMPLES`; until then it is taken to be as fast as its pool. Where no
worker of a model has said anything there is no speed.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from math import log
from statistics import median

from protocol import WorkerId

MIN_SAMPLES = 8
WINDOW = 32
STEP = 4 / 3
MIN_SPEED = 1 / 8
MAX_SPEED = 8.0
POOL_TOLERANCE = 0.05
"""The pooled speed moves only when its median departs by more than this share."""

MIN_WORK_TOKENS = 1_024
"""Smaller prefills say more about the network than about the engine."""


class NoSample(StrEnum):
    """Why a request taught nothing about speed."""

    NOT_STREAMED = "not_streamed"
    NO_TOKENS = "no_tokens"
    TOO_SHORT = "too_short"
    QUEUED = "queued"
    NO_TIME = "no_time"
    UNKNOWN_RANK = "unknown_rank"  # the engine picked it, so what waited there is not known


@dataclass(slots=True)
class _Pool:
    """Workers of one model."""

    medians: dict[WorkerId, float] = field(default_factory=dict)
    speed: float | None = None


class SpeedBook:
    """Learned speeds of all workers; bounded by their number."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._model: dict[WorkerId, str] = {}
        self._samples: dict[WorkerId, deque[float]] = {}
        self._speed: dict[WorkerId, float] = {}

    def add(self, worker: WorkerId, model: str) -> None:
        """Know a worker; what was learned is kept while it serves the same model."""
        if self._model.get(worker) == model:
            return
        self.remove(worker)
        self._model[worker] = model
        self._samples[worker] = deque(maxlen=WINDOW)
        pool = self._pools.setdefault(model, _Pool())
        if pool.speed is not None:
            self._speed[worker] = pool.speed

    def remove(self, worker: WorkerId) -> None:
        """Forget a worker."""
        model = self._model.pop(worker, None)
        if model is None:
            return
        del self._samples[worker]
        self._speed.pop(worker, None)
        self._pools[model].medians.pop(worker, None)
        if model not in self._model.values():
            del self._pools[model]

    def speed(self, worker: WorkerId) -> float | None:
        """How many times as fast as the engine model the worker is; None where nothing is known."""
        return self._speed.get(worker)

    def workers(self) -> list[WorkerId]:
        """Every worker that was added and not removed."""
        return list(self._model)

    def num_samples(self, worker: WorkerId) -> int:
        """Samples in the worker's window."""
        return len(self._samples.get(worker, ()))

    def learn(self, worker: WorkerId, expected_ms: float, observed_ms: float) -> None:
        """Take one sample; of an unknown worker, none. O(workers of the model).

        Args:
            expected_ms: by the engine model as configured or by default, no speed applied.
            observed_ms: from dispatch to the first token, above 0.
        """
        samples = self._samples.get(worker)
        if samples is None:
            return
        samples.append(min(max(expected_ms / observed_ms, MIN_SPEED), MAX_SPEED))
        if len(samples) >= MIN_SAMPLES:
            self._settle(worker, median(samples))

    def _settle(self, worker: WorkerId, own: float) -> None:
        model = self._model[worker]
        pool = self._pools[model]
        pool.medians[worker] = own
        pooled = median(pool.medians.values())
        has_moved = pool.speed is None or abs(pooled / pool.speed - 1) > POOL_TOLERANCE
        if pool.speed is None or has_moved:
            pool.speed = pooled
            for each, of_model in self._model.items():
                if of_model == model:
                    self._speed[each] = _used(pool.medians.get(each), pooled)
        else:
            self._speed[worker] = _used(own, pool.speed)

    def check(self) -> None:
        """Verify that the tables agree and that speeds are within their bounds."""
        assert set(self._samples) == set(self._model), self._model
        assert set(self._speed) <= set(self._model), self._speed
        assert set(self._pools) == set(self._model.values()), self._pools
        for model, pool in self._pools.items():
            members = {worker for worker, of_model in self._model.items() if of_model == model}
            assert set(pool.medians) <= members, (model, pool)
        bound = MAX_SPEED * STEP
        assert all(1 / bound <= speed <= bound for speed in self._speed.values()), self._speed


def _used(own: float | None, pooled: float) -> float:
    if own is None:
        return pooled
    steps: int = round(log(own / pooled) / log(STEP))
    return pooled * STEP**steps
