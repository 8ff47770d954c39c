"""The decision record: where a request went and why, as a dry run, a log line and an answer show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from indexer.storage_source import StorageSource
from indexer.trust import Trust


class Reason(StrEnum):
    """Why the chosen rank was chosen."""

    LOWEST_COST = "lowest_cost"
    TIE = "tie"
    ONLY_CANDIDATE = "only_candidate"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOAD = "least_load"
    LESS_LOADED_OF_TWO = "less_loaded_of_two"
    LONGEST_PREFIX = "longest_prefix"
    SESSION = "session"
    SESSION_NEW = "session_new"
    SESSION_MOVED = "session_moved"
    HASHED = "hashed"
    HASHED_IS_FULL = "hashed_is_full"
    FEWEST_BLOCKS = "fewest_blocks"
    IMBALANCED = "imbalanced"
    LOAD_ONLY = "load_only"
    NO_CANDIDATE = "no_candidate"


class Exclusion(StrEnum):
    """Why a rank was no candidate."""

    DRAINING = "draining"
    UNHEALTHY = "unhealthy"
    BREAKER_OPEN = "breaker_open"
    ALREADY_TRIED = "already_tried"
    OTHER_MODEL = "other_model"
    SLEEPING = "sleeping"
    PROMPT_TOO_LONG = "prompt_too_long"
    NOT_KEEPER = "not_keeper"
    AT_CAPACITY = "at_capacity"


class RankName(NamedTuple):
    """A rank as the record names it."""

    worker: str
    dp_rank: int


@dataclass(slots=True)
class Candidate:
    """One rank as it was weighed. Terms and cost in milliseconds; none where it was excluded.

    ``storage_source`` is what storage blocks rest on, the weakest of them; None where there are none.
    ``block_size`` is 1 where no block of the rank is known. A value, though not a frozen one: a
    decision makes one a rank, and freezing triples what that costs.
    """

    worker: str
    dp_rank: int
    eligible: bool
    excluded_by: Exclusion | None
    trust: Trust
    block_size: int
    gpu_blocks: int
    host_pinned_blocks: int
    storage_blocks: int
    predicted_blocks: int
    observed_blocks: int
    matched_tokens: int
    in_flight: int
    queued_prefill_tokens: int
    terms_ms: Mapping[str, float] = field(default_factory=dict)
    cost_ms: float | None = None
    storage_source: StorageSource | None = None


class Decision(NamedTuple):
    """One routing decision.

    Attributes:
        time: wall clock, seconds since the epoch.
        prompt_tokens: None where the prompt was not tokenized (routed on load alone).
        candidates: the best 16 in full, best first.
        num_candidates: all that were weighed or excluded.
        excluded: all that were excluded, as counts by reason; eligible ones that are not among
            ``candidates`` under ``ranked_lower``.
        timing_us: render, tokenize, keys, match, score; wait, where it waited for room; microseconds.
        rates: what each cost rate of the chosen rank rested on (``configured``, ``learned``,
            ``default``), by name; empty where nobody was chosen.
        rate_values: the rates themselves: prefill, load_back and fetch in tokens per second, decode
            in milliseconds that each running request adds to a step.
        client: the name of the key that the request came with; None where keys are not asked for.
    """

    request_id: str
    time: float
    model: str
    api: str
    policy: str
    prompt_tokens: int | None
    chosen: RankName | None
    reason: Reason
    candidates: Sequence[Candidate]
    num_candidates: int = 0
    excluded: Mapping[str, int] = MappingProxyType({})
    timing_us: Mapping[str, int] = MappingProxyType({})
    rates: Mapping[str, str] = MappingProxyType({})
    rate_values: Mapping[str, float] = MappingProxyType({})
    client: str | None = None
