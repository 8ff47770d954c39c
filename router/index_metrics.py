"""Metrics of the index: totals, and rank by rank what is held, by which right, and what was odd."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric

from indexer.actions import ForgetReason
from indexer.findings import Finding, FindingKind
from indexer.fleet_index import FleetIndex
from indexer.rank_state import IndexStats, RankState
from indexer.trust import Trust
from protocol import Tier
from router.metric_families import Labelled, Reading, by_one, counter, gauge, gauges
from router.pool_findings import pool_findings
from router.pool_metrics import pool_metrics, pool_source_metrics
from router.pool_sources import HeardPool
from router.views import TIER_NAMES

_RANK = ("worker", "dp_rank")


def index_readings(
    index: FleetIndex,
    now: float,
    heard: Sequence[HeardPool] = (),
    others: Sequence[Finding] = (),
) -> Iterator[Reading]:
    """Every number of the index, in steps of O(ranks) each.

    Args:
        heard: the storage pools that publish events of their own.
        others: findings that are not the index's own.
    """
    stats = index.stats()
    yield lambda: _totals(stats)
    yield lambda: _size(index)
    states = index.rank_states(now)
    yield lambda: _ranks(states)
    pools = index.pool_states()
    yield lambda: [*pool_metrics(pools), *pool_source_metrics(heard)]
    found = dict.fromkeys(FindingKind, 0)
    for finding in index.findings(now):
        found[finding.kind] += int(finding.evidence["num_ranks"])
    for finding in others:
        found[finding.kind] += int(finding.evidence["num_ranks"])
    for finding in pool_findings(heard, now):
        found[finding.kind] += int(finding.evidence["num_pools"])
    text = "Ranks, or storage pools, with this finding."
    yield lambda: [gauges("findings", text, ("kind",), by_one(found))]


def _ranks(states: Sequence[RankState]) -> Iterator[Metric]:
    yield from _trust(states)
    yield from _by_tier(states)
    for name, text, value in _RANK_GAUGES:
        yield gauges(name, text, _RANK, _by_rank(states, value))
    for name, text, value in _RANK_COUNTERS:
        yield counter(name, text, _RANK, _by_rank(states, value))
    resets = [
        ((*_name(state), str(reason)), state.resets.get(reason, 0))
        for state in states
        for reason in ForgetReason
    ]
    yield counter("rank_resets", "Times every claim was dropped.", (*_RANK, "reason"), resets)


def _size(index: FleetIndex) -> Iterator[Metric]:
    text = "Memory of the index, estimated from its tables."
    yield gauge("index_bytes", text, index.size_bytes())


def _totals(stats: IndexStats) -> Iterator[Metric]:
    yield gauge("index_blocks", "Distinct blocks with a holder.", stats.blocks)
    claims = [((TIER_NAMES[tier],), count) for tier, count in stats.claims.items()]
    yield gauges("index_claims", "Announced claims of all ranks.", ("tier",), claims)
    yield gauge("index_held", "Hashes held on any tier of any rank.", stats.held)
    yield gauge("index_held_max", "Bound of those; the oldest go.", stats.max_held)
    yield gauge("index_observed", "Claims that rest on evidence.", stats.observed)
    yield gauge("index_predicted", "Blocks dispatched, not yet heard of.", stats.predicted)
    yield gauge("index_doubtful", "Claims older than an unrepaired loss.", stats.doubtful)
    yield gauge("index_parked", "Blocks whose parent is unknown.", stats.orphans)
    yield counter(
        "index_skips",
        "Events and blocks that made no claim.",
        ("reason",),
        by_one(stats.skips),
    )


def _trust(states: Sequence[RankState]) -> Iterator[Metric]:
    ranks = dict.fromkeys(Trust, 0)
    for state in states:
        ranks[state.trust] += 1
    yield gauges(
        "ranks", "Ranks by how far their claims can be believed.", ("trust",), by_one(ranks)
    )


def _by_tier(states: Sequence[RankState]) -> Iterator[Metric]:
    labels = (*_RANK, "tier")
    held = _of_tiers(states, lambda state: state.blocks)
    yield gauges("rank_blocks", "Announced blocks of a rank.", labels, held)
    stored = _of_tiers(states, lambda state: state.duplicates)
    text = "Blocks stored on a tier that held them already."
    yield counter("duplicate_stores", text, labels, stored)
    removed = _of_tiers(states, lambda state: state.unknown_removals)
    text = "Blocks removed from a tier that did not hold them."
    yield counter("unknown_removals", text, labels, removed)


def _of_tiers(
    states: Sequence[RankState], counts: Callable[[RankState], Mapping[Tier, int]]
) -> Labelled:
    return [
        ((*_name(state), TIER_NAMES[tier]), counts(state).get(tier, 0))
        for state in states
        for tier in Tier
    ]


def _by_rank(states: Sequence[RankState], value: Callable[[RankState], int]) -> Labelled:
    return [(_name(state), value(state)) for state in states]


def _name(state: RankState) -> tuple[str, str]:
    return state.rank.worker, str(state.rank.dp_rank)


_RANK_GAUGES: tuple[tuple[str, str, Callable[[RankState], int]], ...] = (
    ("rank_observed", "Blocks held by evidence.", lambda state: state.observed),
    ("rank_doubtful", "Claims older than an unrepaired loss.", lambda state: state.doubtful),
    ("rank_parked", "Blocks whose parent is unknown.", lambda state: state.orphans),
    ("rank_unnamed", "Blocks held that are credited nowhere.", lambda state: state.unnamed),
)
_RANK_COUNTERS: tuple[tuple[str, str, Callable[[RankState], int]], ...] = (
    ("rank_served", "Answers that ended, as evidence.", lambda state: state.served),
    ("rank_reports", "Answers with cached tokens reported.", lambda state: state.reports),
    (
        "rank_claimed_blocks",
        "Blocks matched at decision time, of answers with a report.",
        lambda state: state.claimed_blocks,
    ),
    (
        "rank_reported_blocks",
        "Blocks that the engine reported as cached, of the same answers.",
        lambda state: state.reported_blocks,
    ),
    (
        "rank_contradictions",
        "Reports that fell short of the claims.",
        lambda state: state.contradictions,
    ),
    (
        "rank_dropped_marks",
        "Observed and predicted blocks given up at their bounds.",
        lambda state: state.dropped_marks,
    ),
    ("rank_purges", "Times contradicted claims were dropped.", lambda state: state.purges),
)
