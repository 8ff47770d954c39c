"""Records: a weighing and its ranking, written down as a `Decision`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from indexer.match import RankMatch
from scoring.cost import Price
from scoring.decision import Candidate, Decision, Exclusion, RankName, Reason
from scoring.policies import PolicyName
from scoring.prefix_index import GuardedIndex
from scoring.ranking import Option, Ranking
from scoring.rates import CostRates
from scoring.weighing import Weighing
from scoring.worker_table import RankRow

MAX_CANDIDATES = 16
"""How many candidates a record shows in full."""

RANKED_LOWER = "ranked_lower"
WAIT = "wait"
"""The time that a request waited for room, where it did."""


def decision_of(
    weighing: Weighing,
    ranking: Ranking,
    policy: PolicyName,
    candidates: Sequence[Candidate],
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
        client=request.client,
    )


class WeighedCandidates(Sequence[Candidate]):
    """Candidates that are written out when somebody first reads them: most records are never read.

    Args:
        options: eligible ranks, best first; all of them with a match, or none.
        unmatched: one an option without a match, for that changes; empty where there are matches.
        excluded: written out already, for what they say of the rank changes.
    """

    __slots__ = ("_excluded", "_options", "_unmatched", "_written")

    def __init__(
        self,
        options: list[Option],
        unmatched: list[RankMatch],
        excluded: tuple[Candidate, ...],
    ) -> None:
        self._options = options
        self._unmatched = unmatched
        self._excluded = excluded
        self._written: tuple[Candidate, ...] | None = None

    def __len__(self) -> int:
        return len(self._options) + len(self._excluded)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | Sequence[Candidate]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and self._all() == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _all(self) -> tuple[Candidate, ...]:
        if self._written is None:
            matches = [option.match for option in self._options]
            weighed = map(_weighed, self._options, self._unmatched or matches)
            self._written = (*weighed, *self._excluded)
        return self._written


def candidates_of(
    weighing: Weighing,
    ranking: Ranking,
    index: GuardedIndex,
    now: float,
    limit: int | None = MAX_CANDIDATES,
) -> Sequence[Candidate]:
    """The ranked options, best first, then the excluded; the first ``limit`` (None: all)."""
    options = ranking.options[:limit]
    room = None if limit is None else limit - len(options)
    left_out: tuple[Candidate, ...] = ()
    if room != 0 and (weighing.excluded or weighing.resolution.num_others):
        excluded = list(weighing.excluded)
        if weighing.resolution.num_others:
            excluded += ((row, Exclusion.OTHER_MODEL) for row in weighing.resolution.others)
        left_out = tuple(_excluded(row, reason, index, now) for row, reason in excluded[:room])
    unmatched: list[RankMatch] = []
    if options and options[0].match is None:
        rows = [option.row for option in options]
        trusts = index.trusts([row.rank for row in rows], now)
        unmatched = [
            RankMatch(trust, row.entry.spec.block_size or 1)
            for row, trust in zip(rows, trusts, strict=True)
        ]
    return WeighedCandidates(options, unmatched, left_out)


def _weighed(option: Option, match: RankMatch | None) -> Candidate:
    row, _, price, in_flight, queued_tokens = option
    assert match is not None, "options have a match each, or none of them has"
    return Candidate(
        worker=row.rank.worker,
        dp_rank=row.rank.dp_rank,
        eligible=True,
        excluded_by=None,
        trust=match.trust,
        block_size=match.block_size,
        gpu_blocks=match.gpu_blocks,
        host_pinned_blocks=match.host_pinned_blocks,
        storage_blocks=match.storage_blocks,
        predicted_blocks=match.predicted_blocks,
        observed_blocks=match.observed_blocks,
        matched_tokens=match.matched_tokens,
        in_flight=in_flight,
        queued_prefill_tokens=queued_tokens,
        terms_ms=_terms_ms(price),
        cost_ms=price.cost_ms,
        storage_source=match.storage_source,
    )


def _terms_ms(price: Price) -> dict[str, float]:
    return {
        "queue": price.queue_ms,
        "prefill": price.prompt.prefill_ms,
        "load_back": price.prompt.load_back_ms,
        "fetch": price.prompt.fetch_ms,
        "decode": price.decode_ms,
    }


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
    timing = {
        "render": spent.get("render", 0),
        "tokenize": spent.get("tokenize", 0),
        "keys": keys_ns // 1_000,
        "match": weighing.match_ns // 1_000,
        "score": score_ns // 1_000,
    }
    if WAIT in spent:
        timing[WAIT] = spent[WAIT]
    return timing


NOBODY = Ranking([], Reason.NO_CANDIDATE)
"""The ranking of no options."""
