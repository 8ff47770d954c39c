"""What the configuration says of how fast engines are."""

from typing import Annotated

from pydantic import Field, model_validator

from protocol import DEFAULT_ENGINE_MODEL, EngineModel
from router.config_section import Section
from scoring import RateName, with_hit_weights

Rate = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0, lt=1)]


class EngineRates(Section):
    """Rates and hit weights that are known; what is left out is learned or has its default.

    A hit weight is the share of a block's prefill that a hit on the tier saves, and sets the tier's rate.

    Attributes:
        prefill_tokens_per_s: of a short prompt. Where it is set, nothing is learned.
        attention_doubling_tokens: prompt length at which attention doubles the cost of prefill.
        load_back_tokens_per_s: pinned host memory to GPU.
        fetch_tokens_per_s: storage to host memory.
        decode_ms_per_request: what each further running request adds to a decode step.
        host_hit_weight: in place of ``load_back_tokens_per_s``.
        storage_hit_weight: in place of ``fetch_tokens_per_s``.
    """

    prefill_tokens_per_s: Rate | None = None
    attention_doubling_tokens: Rate | None = None
    load_back_tokens_per_s: Rate | None = None
    fetch_tokens_per_s: Rate | None = None
    decode_ms_per_request: Rate | None = None
    host_hit_weight: Weight | None = None
    storage_hit_weight: Weight | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "EngineRates":
        for weight, rate in (("host_hit_weight", "load_back"), ("storage_hit_weight", "fetch")):
            if None not in (getattr(self, weight), getattr(self, f"{rate}_tokens_per_s")):
                raise ValueError(f"{weight} and {rate}_tokens_per_s set the same rate")
        return self

    def model(self) -> EngineModel:
        """The default engine model with these rates in place."""
        weights = {"host_hit_weight", "storage_hit_weight"}
        known = self.model_dump(exclude_none=True, exclude=weights)
        values = {name: getattr(DEFAULT_ENGINE_MODEL, name) for name in EngineModel.__slots__}
        engine = EngineModel(**{**values, **known})
        return with_hit_weights(engine, host=self.host_hit_weight, storage=self.storage_hit_weight)

    def configured(self) -> frozenset[RateName]:
        """The rates that are set here, to whatever value: these are not learned."""
        set_by = {
            RateName.PREFILL: self.prefill_tokens_per_s,
            RateName.LOAD_BACK: self.load_back_tokens_per_s or self.host_hit_weight,
            RateName.FETCH: self.fetch_tokens_per_s or self.storage_hit_weight,
            RateName.DECODE: self.decode_ms_per_request,
        }
        return frozenset(name for name, value in set_by.items() if value is not None)
