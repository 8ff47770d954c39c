"""How a request is told which of a worker's data-parallel ranks is to serve it: by engine, version and API.

                            chat, completions     messages   responses   generate
    vLLM                    header                header     -           -
    SGLang 0.5.20 and on    header                header     header      routed_dp_rank
    SGLang 0.5.10 and on    header                header     -           routed_dp_rank
    SGLang 0.5.6 and on     data_parallel_rank    -          -           data_parallel_rank
    SGLang before           -                     -          -           data_parallel_rank

A name is a field of the body, a dash means that the engine picks the rank by itself. A version that is not known is
taken to be a new one, an engine that is not known to read the header.

Source: SGLang 0.4.10 to 0.5.23 (``serving_base``, ``serving_*``, ``io_struct``), vLLM 0.32.0 (``serving``), read.
"""

from collections.abc import Mapping
from enum import StrEnum

from indexer.engine_version import version_numbers
from prompt import Api
from protocol import EngineKind


class RankPin(StrEnum):
    """How the rank is named to the engine."""

    HEADER = "header"
    FIELD = "routed_dp_rank"  # of the body
    OLD_FIELD = "data_parallel_rank"  # of the body
    NONE = "none"


RankPins = Mapping[str, RankPin]
"""By API."""

_VLLM: RankPins = {
    **dict.fromkeys(Api, RankPin.HEADER),
    Api.RESPONSES: RankPin.NONE,
    Api.GENERATE: RankPin.NONE,
}
_SGLANG: tuple[tuple[tuple[int, int, int], RankPins], ...] = (
    (
        (0, 5, 20),
        {
            **dict.fromkeys(Api, RankPin.HEADER),
            Api.GENERATE: RankPin.FIELD,
            Api.OTHER: RankPin.NONE,
        },
    ),
    (
        (0, 5, 10),
        {
            **dict.fromkeys(Api, RankPin.NONE),
            **dict.fromkeys((Api.CHAT, Api.COMPLETIONS, Api.MESSAGES), RankPin.HEADER),
            Api.GENERATE: RankPin.FIELD,
        },
    ),
    (
        (0, 5, 6),
        {
            **dict.fromkeys(Api, RankPin.NONE),
            **dict.fromkeys((Api.CHAT, Api.COMPLETIONS, Api.GENERATE), RankPin.OLD_FIELD),
        },
    ),
    ((0, 0, 0), {**dict.fromkeys(Api, RankPin.NONE), Api.GENERATE: RankPin.OLD_FIELD}),
)
_UNKNOWN: RankPins = dict.fromkeys(Api, RankPin.HEADER)


def rank_pins(engine: EngineKind, version: str | None) -> RankPins:
    """How this engine is told, by API."""
    match engine:
        case EngineKind.VLLM:
            return _VLLM
        case EngineKind.SGLANG:
            numbers = version_numbers(version)
            return next(pins for since, pins in _SGLANG if numbers is None or numbers >= since)
        case EngineKind.UNKNOWN:
            return _UNKNOWN
