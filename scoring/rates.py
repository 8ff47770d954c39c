"""Rates: how fast a worker is taken to be, and what that rests on.

Precedence, rate by rate: what the operator configured, else what was learned, else the default engine
model. What is learned is one factor, the worker's *speed* relative to the model (`scoring.speeds`),
and it scales every rate that is not configured. So in a fleet of equal workers learning changes the
scale of the costs and no decision, and a hit keeps its worth relative to prefill on every tier.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from protocol import DEFAULT_ENGINE_MODEL, EngineModel, WorkerId
from scoring.speeds import SpeedBook


class RateName(StrEnum):
    """The rates that a cost is made of."""

    PREFILL = "prefill"
    LOAD_BACK = "load_back"
    FETCH = "fetch"
    DECODE = "decode"


class RateSource(StrEnum):
    """What a rate rests on."""

    CONFIGURED = "configured"
    LEARNED = "learned"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class CostRates:
    """One worker's rates as the cost uses them, and as the record shows them.

    Attributes:
        prefill_ms_per_token: of a short prompt.
        attention_doubling_tokens: prompt length at which attention doubles the cost of prefill.
        decode_ms_per_request: what each running request adds to a decode step.
        sources: what each rate rests on, by `RateName`.
        values: tokens per second, by `RateName`; decode in milliseconds per request and step.
    """

    prefill_ms_per_token: float
    attention_doubling_tokens: float
    load_back_ms_per_token: float
    fetch_ms_per_token: float
    decode_ms_per_request: float
    sources: Mapping[str, str]
    values: Mapping[str, float]


def with_hit_weights(
    model: EngineModel, *, host: float | None = None, storage: float | None = None
) -> EngineModel:
    """The model whose rates give hits these weights.

    A weight is the share of a block's prefill that a hit on the tier saves: a hit of weight w is
    restored at p / (1 - w) tokens per second. None keeps the model's rate.

    Raises:
        ValueError: a weight is not in [0, 1).
    """
    for weight in (host, storage):
        if weight is not None and not 0 <= weight < 1:
            raise ValueError(f"a hit weight lies in [0, 1), not {weight}")
    rate = model.prefill_tokens_per_s
    if host is not None:
        model = replace(model, load_back_tokens_per_s=rate / (1 - host))
    if storage is not None:
        model = replace(model, fetch_tokens_per_s=rate / (1 - storage))
    return model


class HitWeights(NamedTuple):
    """Shares of a block's prefill that a hit saves, by tier; on GPU it saves all."""

    host: float
    storage: float


def hit_weights(model: EngineModel) -> HitWeights:
    """The weights that the model's rates give hits; 0 where restoring takes longer than prefilling."""
    rate = model.prefill_tokens_per_s
    return HitWeights(
        max(0.0, 1 - rate / model.load_back_tokens_per_s),
        max(0.0, 1 - rate / model.fetch_tokens_per_s),
    )


def configured_rates(model: EngineModel) -> frozenset[RateName]:
    """The rates in which a model departs from the default one."""
    default = DEFAULT_ENGINE_MODEL
    pairs = {
        RateName.PREFILL: (model.prefill_tokens_per_s, default.prefill_tokens_per_s),
        RateName.LOAD_BACK: (model.load_back_tokens_per_s, default.load_back_tokens_per_s),
        RateName.FETCH: (model.fetch_tokens_per_s, default.fetch_tokens_per_s),
        RateName.DECODE: (model.decode_ms_per_request, default.decode_ms_per_request),
    }
    return frozenset(name for name, (value, usual) in pairs.items() if value != usual)


class RateTable:
    """The rates of every worker.

    Args:
        model: configured and default rates together.
        configured: which of them the operator set; None for those that depart from the default.
            A configured prefill rate switches learning off: there is nothing left to relate to.
    """

    def __init__(
        self,
        model: EngineModel = DEFAULT_ENGINE_MODEL,
        configured: Collection[RateName] | None = None,
    ) -> None:
        self.model = model
        self._configured = configured_rates(model) if configured is None else frozenset(configured)
        self.speeds = SpeedBook()
        self._unlearned = self._make(None)
        self._by_speed: dict[float, CostRates] = {}

    def rates(self, worker: WorkerId) -> CostRates:
        """The rates to price a request on this worker with. O(1)."""
        speed = self.speeds.speed(worker)
        if speed is None or RateName.PREFILL in self._configured:
            return self._unlearned
        found = self._by_speed.get(speed)
        if found is None:
            if len(self._by_speed) >= 1_024:
                self._by_speed.clear()
            found = self._by_speed[speed] = self._make(speed)
        return found

    def _make(self, speed: float | None) -> CostRates:
        model = self.model
        values = {
            RateName.PREFILL: model.prefill_tokens_per_s,
            RateName.LOAD_BACK: model.load_back_tokens_per_s,
            RateName.FETCH: model.fetch_tokens_per_s,
            RateName.DECODE: model.decode_ms_per_request,
        }
        sources = dict.fromkeys(values, RateSource.DEFAULT)
        for name in values:
            if name in self._configured:
                sources[name] = RateSource.CONFIGURED
            elif speed is not None:
                sources[name] = RateSource.LEARNED
                values[name] *= speed if name is not RateName.DECODE else 1 / speed
        return CostRates(
            prefill_ms_per_token=1e3 / values[RateName.PREFILL],
            attention_doubling_tokens=model.attention_doubling_tokens,
            load_back_ms_per_token=1e3 / values[RateName.LOAD_BACK],
            fetch_ms_per_token=1e3 / values[RateName.FETCH],
            decode_ms_per_request=values[RateName.DECODE],
            sources={name.value: source.value for name, source in sources.items()},
            values={name.value: value for name, value in values.items()},
        )
