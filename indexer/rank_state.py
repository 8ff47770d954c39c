"""Snapshots of what the index knows, as the debug pages and metrics show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from indexer.actions import ForgetReason
from indexer.identity import ClaimSkip
from indexer.trust import Trust
from protocol import Rank, Tier


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank.

    Attributes:
        block_size: at which the rank is looked up first; its events' own where it has any.
        blocks: announced claims by tier.
        observed: blocks held by evidence; those that are announced as well on HOST or STORAGE included.
        predicted: blocks dispatched and not yet heard of.
        dropped_marks: observed and predicted blocks that were given up at their bounds.
        doubtful: announced claims older than an unrepaired loss.
        orphans: parked blocks whose parent is unknown.
        unnamed: blocks held that are credited nowhere: orphans, stores without tokens, unknown identity.
        duplicates: by tier, stores of what was held.
        unknown_removals: by tier, removals of what was not held.
        skips: events and blocks that made no claim, by reason.
        claimed_blocks, reported_blocks: matched at decision time, and reported as cached, over the
            requests with a report.
        resets: how often every claim was dropped, by reason.
        contradictions: reports that fell short of the claims; ``purges`` followed from them.
    """

    rank: Rank
    trust: Trust
    block_size: int
    blocks: Mapping[Tier, int]
    observed: int
    predicted: int
    dropped_marks: int
    doubtful: int
    orphans: int
    unnamed: int
    duplicates: Mapping[Tier, int]
    unknown_removals: Mapping[Tier, int]
    skips: Mapping[ClaimSkip, int]
    served: int
    reports: int
    claimed_blocks: int
    reported_blocks: int
    contradictions: int
    purges: int
    resets: Mapping[ForgetReason, int]


@dataclass(frozen=True, slots=True)
class IndexStats:
    """The whole fleet.

    Attributes:
        blocks: distinct blocks with a holder, over all key spaces.
        claims: announced, by tier, over all ranks.
        held: hashes held on any tier, named or not; ``max_held`` is their bound.
        unswept: blocks of claims that were dropped at once, to be cleaned up.
        skips: events and blocks that made no claim, by reason, departed workers included.
    """

    workers: int = 0
    ranks: int = 0
    key_spaces: int = 0
    blocks: int = 0
    claims: Mapping[Tier, int] = field(default_factory=dict)
    held: int = 0
    max_held: int = 0
    unswept: int = 0
    observed: int = 0
    predicted: int = 0
    doubtful: int = 0
    orphans: int = 0
    skips: Mapping[ClaimSkip, int] = field(default_factory=dict)
