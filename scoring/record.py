"""Records: a weighing and its ranking, written down as a `Decision`."""

from collections.abc import Mapping

from scoring.decision import Candidate, Decision, Exclusion, RankName, Reason
from scoring.policies import Option, PolicyName, Ranking
from scoring.prefix_index import GuardedIndex
from scoring.rates import CostRates
from scoring.weighing import Weighing
from scoring.worker_table import RankRow

MAX_CANDIDATES = 16
"""How many candidates a record shows in full."""

RANKED_LOWER = "ranked_lower"


def decision_of(
    weighing: Weighing,
    ranking: Ranking,
    policy: PolicyName,
    candidates: tuple[Candidate, ...],
    rates: CostRates | None,
    score_ns: int,
) -> Decision:
    """Write down one decision.

    Args:
        candidates: of `candidates_of`.
        rates: of the chosen rank; None where nobody was chosen.
        score_ns: time spent outside key making and lookup.
    """
    request, resolution = weighing.request, weighing.resolution
    chosen = None
    if ranking.options:
        rank = ranking.options[0].row.rank
        chosen = RankName(rank.worker, rank.dp_rank)
    num_shown = min(len(ranking.options), len(candidates))
    num_ranks = len(weighing.options) + len(weighing.excluded) + resolution.num_others
    return Decision(
        request_id=request.request_id,
        time=request.time,
        model=request.model or resolution.model or "",
        api=request.api,
        policy=policy.value,
        prompt_tokens=weighing.prompt_tokens,
        chosen=chosen,
        reason=ranking.reason,
        candidates=candidates,
        num_candidates=num_ranks,
        excluded=_counts(weighing, len(ranking.options) - num_shown),
        timing_us=_timing_us(weighing, score_ns),
        rates=rates.sources if rates is not None else {},
        rate_values=rates.values if rates is not None else {},
    )


def candidates_of(
    weighing: Weighing,
    ranking: Ranking,
    index: GuardedIndex,
    now: float,
    limit: int | None = MAX_CANDIDATES,
) -> tuple[Candidate, ...]:
    """The ranked options, best first, then the excluded; the first ``limit`` (None: all)."""
    shown = [_weighed(option, index, now) for option in ranking.options[:limit]]
    if limit is not None and len(shown) >= limit:
        return tuple(shown)
    excluded = list(weighing.excluded)
    if weighing.resolution.num_others:
        excluded += ((row, Exclusion.OTHER_MODEL) for row in weighing.resolution.others)
    room = None if limit is None else limit - len(shown)
    shown += (_excluded(row, reason, index, now) for row, reason in excluded[:room])
    return tuple(shown)


def _weighed(option: Option, index: GuardedIndex, now: float) -> Candidate:
    row, match, price, in_flight, queued_tokens = option
    rank = row.rank
    terms = {
        "queue": price.queue_ms,
        "prefill": price.prefill_ms,
        "load_back": price.load_back_ms,
        "fetch": price.fetch_ms,
        "decode": price.decode_ms,
    }
    if match is None:
        return Candidate(
            *(rank.worker, rank.dp_rank, True, None, index.trust(rank, now)),
            *(row.entry.spec.block_size or 1, 0, 0, 0, 0, 0, 0),
            *(in_flight, queued_tokens, terms, price.cost_ms),
        )
    return Candidate(
        rank.worker,
        rank.dp_rank,
        True,  # noqa: FBT003  the fields in their order: keywords cost a third more
        None,
        match.trust,
        match.block_size,
        match.gpu_blocks,
        match.host_pinned_blocks,
        match.storage_blocks,
        match.predicted_blocks,
        match.observed_blocks,
        match.matched_tokens,
        in_flight,
        queued_tokens,
        terms,
        price.cost_ms,
    )


def _excluded(row: RankRow, reason: Exclusion, index: GuardedIndex, now: float) -> Candidate:
    tokens, _ = row.book.queued(now)
    return Candidate(
        worker=row.rank.worker,
        dp_rank=row.rank.dp_rank,
        eligible=False,
        excluded_by=reason,
        trust=index.trust(row.rank, now),
        block_size=row.entry.spec.block_size or 1,
        gpu_blocks=0,
        host_pinned_blocks=0,
        storage_blocks=0,
        predicted_blocks=0,
        observed_blocks=0,
        matched_tokens=0,
        in_flight=row.book.in_flight,
        queued_prefill_tokens=tokens,
    )


def _counts(weighing: Weighing, num_lower: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, reason in weighing.excluded:
        counts[reason.value] = counts.get(reason.value, 0) + 1
    if weighing.resolution.num_others:
        counts[Exclusion.OTHER_MODEL.value] = weighing.resolution.num_others
    if num_lower:
        counts[RANKED_LOWER] = num_lower
    return counts


def _timing_us(weighing: Weighing, score_ns: int) -> Mapping[str, int]:
    spent = weighing.request.timing_us
    keys_ns = weighing.prompt.keys_ns if weighing.prompt is not None else 0
    return {
        "render": spent.get("render", 0),
        "tokenize": spent.get("tokenize", 0),
        "keys": keys_ns // 1_000,
        "match": weighing.match_ns // 1_000,
        "score": score_ns // 1_000,
    }


NOBODY = Ranking([], Reason.NO_CANDIDATE)
"""The ranking of no options."""
