"""Any order of calls, against an oracle that only counts: invariants hold, and load ends at zero."""

from collections import Counter
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indexer.trust import Trust
from protocol import Rank, Tier, TokenBytes, WorkerId
from scoring.brain import NoCandidateError, Outcome, OutcomeKind, Plan, TooManyRequestsError
from scoring.capacity import Capacity
from scoring.decision import Exclusion
from scoring.planner import Planner, PlannerLimits
from scoring.policies import PolicyName
from scoring.worker_table import TooManyWorkersError
from tests.scoring.fleet import TruthIndex, rank, request, spec, tokens_of

NAMES = ("a", "b", "c", "d")
PROMPTS: list[TokenBytes | None] = [
    None,
    tokens_of(0),
    tokens_of(7),
    tokens_of(100),
    tokens_of(5_000),
]
LIMITS = PlannerLimits(
    max_workers=3, max_open_plans=12, max_decisions=5, max_plan_age_s=50.0, max_sessions=2
)

names = st.sampled_from(NAMES)
prompts = st.sampled_from(PROMPTS)


class PlannerMachine(RuleBasedStateMachine):
    """Drives a planner through the relay's and the operator's calls."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.index = TruthIndex()
        self.workers: dict[str, int] = {}  # name → number of ranks
        self.incarnation: dict[Rank, int] = {}  # how often the rank has left
        self.open: dict[int, tuple[Plan, int]] = {}
        self.finished: list[int] = []

    @initialize(policy=st.sampled_from(PolicyName), capacity=st.none() | st.integers(1, 4))
    def start(self, policy: PolicyName, capacity: int | None) -> None:
        self.planner = Planner(
            self.index, policy=policy, rng=Random(1), limits=LIMITS, timer=lambda: 0
        )
        self.capacity = capacity
        self.planner.bound(Capacity(capacity))

    @rule(name=names, num_ranks=st.integers(1, 3), model=st.sampled_from(["m", "m2"]))
    def add_worker(self, name: str, num_ranks: int, model: str) -> None:
        try:
            self.planner.add_worker(spec(name, num_ranks=num_ranks, model=model))
        except TooManyWorkersError:
            assert name not in self.workers
            assert len(self.workers) == LIMITS.max_workers
            return
        for dp_rank in range(num_ranks, self.workers.get(name, 0)):
            self._leave(rank(name, dp_rank))
        self.workers[name] = num_ranks

    @rule(name=names)
    def remove_worker(self, name: str) -> None:
        self.planner.remove_worker(WorkerId(name))
        for dp_rank in range(self.workers.pop(name, 0)):
            self._leave(rank(name, dp_rank))

    def _leave(self, gone: Rank) -> None:
        self.incarnation[gone] = self.incarnation.get(gone, 0) + 1

    @rule(
        name=names,
        reason=st.none() | st.sampled_from([Exclusion.UNHEALTHY, Exclusion.SLEEPING]),
        is_draining=st.booleans(),
    )
    def mark(self, name: str, reason: Exclusion | None, is_draining: bool) -> None:
        worker = WorkerId(name)
        assert self.planner.set_draining(worker, is_draining) is (name in self.workers)
        assert self.planner.set_excluded(worker, reason) is (name in self.workers)

    @rule(name=names, prompt=prompts, tier=st.sampled_from(Tier), trust=st.sampled_from(Trust))
    def hear(self, name: str, prompt: TokenBytes | None, tier: Tier, trust: Trust) -> None:
        self.index.trusts[rank(name)] = trust
        if prompt is not None:
            self.index.hold(rank(name), prompt, tier)

    @rule(is_broken=st.booleans())
    def break_index(self, is_broken: bool) -> None:
        self.index.fault = RuntimeError("broken") if is_broken else None

    @rule(
        prompt=prompts,
        is_streaming=st.booleans(),
        model=st.sampled_from(["m", "m2", None]),
        tried=st.frozensets(names, max_size=2),
        session=st.sampled_from([None, "s", "t", "u"]),
    )
    def plan(
        self,
        prompt: TokenBytes | None,
        is_streaming: bool,
        model: str | None,
        tried: frozenset[str],
        session: str | None,
    ) -> None:
        asked = request(
            prompt,
            model=model,
            is_streaming=is_streaming,
            excluded=[rank(name) for name in tried],
            session=session,
        )
        try:
            plan = self.planner.plan(asked, self.now)
        except NoCandidateError as error:
            if Exclusion.AT_CAPACITY in error.decision.excluded:
                booked = self._booked()
                assert any(booked[one] == self.capacity for one in self.planner.takers(asked))
            return
        except TooManyRequestsError:
            assert len(self.open) == LIMITS.max_open_plans
            return
        assert plan.rank.worker in self.workers
        assert plan.rank not in asked.excluded
        assert plan.rank in self.planner.takers(asked)
        assert self.capacity is None or self._booked()[plan.rank] < self.capacity
        self.open[plan.plan_id] = (plan, self.incarnation.get(plan.rank, 0))

    def _booked(self) -> Counter[Rank]:
        return Counter(
            plan.rank
            for plan, incarnation in self.open.values()
            if incarnation == self.incarnation.get(plan.rank, 0)
        )

    @rule(choice=st.integers(0, 99))
    def first_byte(self, choice: int) -> None:
        if self.open:
            self.planner.first_byte(list(self.open)[choice % len(self.open)], self.now)

    @rule(
        choice=st.integers(0, 99), kind=st.sampled_from(OutcomeKind), cached=st.integers(0, 5_000)
    )
    def finish(self, choice: int, kind: OutcomeKind, cached: int) -> None:
        if self.open:
            plan_id = list(self.open)[choice % len(self.open)]
            self.planner.finish(plan_id, Outcome(kind, cached_tokens=cached), self.now)
            del self.open[plan_id]
            self.finished.append(plan_id)

    @rule()
    def finish_again(self) -> None:
        if self.finished:
            before = self.planner.counters().unknown_finishes
            self.planner.finish(self.finished[-1], Outcome(OutcomeKind.COMPLETED), self.now)
            assert self.planner.counters().unknown_finishes == before + 1

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.planner.tick(self.now)
        self.open = {
            plan_id: (plan, incarnation)
            for plan_id, (plan, incarnation) in self.open.items()
            if plan_id in self.planner._open
        }

    @invariant()
    def the_books_are_right(self) -> None:
        self.planner.check()
        expected = self._booked()
        for load in self.planner.rank_loads(self.now):
            assert 0 <= load.decode_requests <= load.in_flight
            assert load.queued_prefill_tokens >= 0
            assert load.in_flight == expected[load.rank], load
        assert self.planner.counters().open_plans == len(self.open)

    def teardown(self) -> None:
        """Whatever happened, when all requests have ended nothing is left of them."""
        for plan_id in self.open:
            self.planner.finish(plan_id, Outcome(OutcomeKind.CLIENT_CLOSED), self.now)
        self.planner.check()
        assert self.planner.counters().open_plans == 0
        for load in self.planner.rank_loads(self.now):
            assert (load.in_flight, load.queued_prefill_tokens, load.decode_requests) == (0, 0, 0)


TestPlannerMachine = PlannerMachine.TestCase
TestPlannerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
