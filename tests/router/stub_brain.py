"""A tiny brain: ranks in turn, every booking remembered until it is finished."""

from collections import Counter
from dataclasses import dataclass, field

from indexer.trust import Trust
from protocol import Rank, WorkerId
from scoring import (
    Candidate,
    Decision,
    Exclusion,
    NoCandidateError,
    Outcome,
    OutcomeKind,
    Plan,
    PlanRequest,
    RankName,
    Reason,
)
from scoring.room_watch import RoomWatch, Unwatched


@dataclass
class StubBrain:
    """Implements ``scoring.brain.Brain`` for workers that all serve ``model``."""

    urls: dict[str, str]
    dp_ranks: range = range(1)
    model: str = "m"
    open: dict[int, Plan] = field(default_factory=dict)
    requests: list[PlanRequest] = field(default_factory=list)
    first_bytes: Counter[int] = field(default_factory=Counter)
    outcomes: list[tuple[Rank, Outcome]] = field(default_factory=list)
    num_unknown: int = 0
    fault: Exception | None = None
    max_tokens: int | None = None
    capacity: int | None = None
    watch: RoomWatch = field(default_factory=Unwatched)

    def plan(self, request: PlanRequest, now: float) -> Plan:
        """The first rank that is not excluded, the least used first."""
        if self.fault is not None:
            raise self.fault
        self.requests.append(request)
        ranks = [Rank(WorkerId(name), rank) for name in self.urls for rank in self.dp_ranks]
        used = Counter(plan.rank for plan in self.open.values())
        if request.model not in (None, self.model):
            raise NoCandidateError(_decision(request, None, {Exclusion.OTHER_MODEL: len(ranks)}))
        length = len(request.tokens or b"") // 4
        if self.max_tokens is not None and length > self.max_tokens:
            raise NoCandidateError(
                _decision(request, None, {Exclusion.PROMPT_TOO_LONG: len(ranks)})
            )
        if request.keeper is not None:
            ranks = [rank for rank in ranks if rank.worker == request.keeper]
            if not ranks:
                raise NoCandidateError(_decision(request, None, {Exclusion.NOT_KEEPER: 1}))
        free = sorted((used[rank], rank) for rank in ranks if rank not in request.excluded)
        if not free:
            raise NoCandidateError(_decision(request, None, {Exclusion.ALREADY_TRIED: len(ranks)}))
        num_used, rank = free[0]
        if self.capacity is not None and num_used >= self.capacity:
            raise NoCandidateError(_decision(request, None, {Exclusion.AT_CAPACITY: len(free)}))
        plan = Plan(
            len(self.requests),
            rank,
            self.urls[rank.worker],
            _decision(request, rank, {}),
            self.dp_ranks,
            matched_tokens=8,
        )
        self.open[plan.plan_id] = plan
        return plan

    def takers(self, request: PlanRequest) -> frozenset[Rank]:
        """Ranks that have not failed it, of the one model."""
        ranks = {Rank(WorkerId(name), rank) for name in self.urls for rank in self.dp_ranks}
        is_served = request.model in (None, self.model)
        return frozenset(ranks - request.excluded) if is_served else frozenset()

    def first_byte(self, plan_id: int, now: float) -> None:
        """Count it."""
        self.first_bytes[plan_id] += 1

    def finish(self, plan_id: int, outcome: Outcome, now: float) -> None:
        """Release the booking."""
        plan = self.open.pop(plan_id, None)
        if plan is None:
            self.num_unknown += 1
        else:
            self.outcomes.append((plan.rank, outcome))
            self.watch.rank_freed(plan.rank)

    @property
    def kinds(self) -> list[OutcomeKind]:
        """How the attempts ended, in order."""
        return [outcome.kind for _, outcome in self.outcomes]

    def check(self) -> None:
        """Every plan was finished, and finished once."""
        assert not self.open, self.open
        assert self.num_unknown == 0


def _decision(request: PlanRequest, rank: Rank | None, excluded: dict[str, int]) -> Decision:
    chosen = None if rank is None else RankName(rank.worker, rank.dp_rank)
    candidates = () if rank is None else (_candidate(rank),)
    return Decision(
        request_id=request.request_id,
        time=request.time,
        model=request.model or "",
        api=request.api,
        policy="stub",
        prompt_tokens=None,
        chosen=chosen,
        reason=Reason.ROUND_ROBIN if chosen else Reason.NO_CANDIDATE,
        candidates=candidates,
        num_candidates=len(candidates),
        excluded=excluded,
    )


def _candidate(rank: Rank) -> Candidate:
    return Candidate(
        worker=rank.worker,
        dp_rank=rank.dp_rank,
        eligible=True,
        excluded_by=None,
        trust=Trust.EXACT,
        block_size=4,
        gpu_blocks=2,
        host_pinned_blocks=0,
        storage_blocks=0,
        predicted_blocks=0,
        observed_blocks=0,
        matched_tokens=8,
        in_flight=0,
        queued_prefill_tokens=0,
        cost_ms=1.0,
    )
