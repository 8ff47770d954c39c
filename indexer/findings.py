"""Findings: named gaps in what the router can know, with evidence and what to change."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol import Rank


class FindingKind(StrEnum):
    """Every gap that the router can name."""

    HOST_STORES_UNANNOUNCED = "host_stores_unannounced"
    EVENTS_MISSING = "events_missing"
    REPLAY_OFF = "replay_off"
    REPLAY_FAILING = "replay_failing"
    LOSS_UNREPAIRED = "loss_unrepaired"
    EVENTS_UNREADABLE = "events_unreadable"
    PARITY_BROKEN = "parity_broken"
    TOKENS_DIFFER = "tokens_differ"
    BLOCK_SIZE_DISAGREES = "block_size_disagrees"
    RANK_UNREACHABLE = "rank_unreachable"
    RANK_UNKNOWN = "rank_unknown"
    CACHED_TOKENS_CONTRADICT = "cached_tokens_contradict"
    CLEARS_MISSING = "clears_missing"
    POOL_UNREACHABLE = "pool_unreachable"
    POOL_UNUSED = "pool_unused"


@dataclass(frozen=True, slots=True)
class Finding:
    """One gap.

    Attributes:
        since: when it was first seen, monotonic seconds.
        ranks: those that have it, the first 64; ``num_ranks`` of the evidence is their number. None where it is
            about a storage pool.
        evidence: counts and examples, by name.
        advice: what to change, in one sentence.
    """

    kind: FindingKind
    since: float
    ranks: tuple[Rank, ...]
    evidence: Mapping[str, int | float | str]
    advice: str
