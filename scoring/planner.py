"""The planner: the brain behind `scoring.brain.Brain`.

One request's way through it:

    plan        resolve ▶ filter ▶ match ▶ price ▶ rank ▶ record ▶ book a lease ▶ predict its blocks
    first_byte  lease to decode; the index observes the prompt (streamed answers)
    finish      lease released; the index observes (others) and takes the engine's report

Pure: no clock, no I/O; ``now`` is monotonic seconds. The timer that is passed in measures
``timing_us`` and nothing else. Everything is bounded by `PlannerLimits`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from time import perf_counter_ns

from protocol import DEFAULT_ENGINE_MODEL, EngineModel, Rank, WorkerId, WorkerSpec
from scoring.brain import (
    NoCandidateError,
    Outcome,
    OutcomeKind,
    Plan,
    PlanRequest,
    TooManyRequestsError,
)
from scoring.capacity import Capacity
from scoring.counters import PlannerCounters, ReuseSums
from scoring.decision import Decision, Exclusion, Reason
from scoring.decision_log import DecisionLog
from scoring.key_memo import KeyMemo
from scoring.load import RankLoad
from scoring.open_plan import OpenPlan, is_covered, open_plan, speed_sample
from scoring.open_plans import OpenPlans
from scoring.policies import PolicyName, make_policy
from scoring.prefix_index import GuardedIndex, PrefixIndex
from scoring.ranking import Ranking
from scoring.rates import RateName, RateTable, hit_weights
from scoring.record import MAX_CANDIDATES, NOBODY, candidates_of, decision_of
from scoring.room_watch import RoomWatch, together
from scoring.session_affinity import MAX_IDLE_S, MAX_SESSIONS
from scoring.speeds import NoSample
from scoring.takers import takers_of
from scoring.weighing import UNROUTED_API, Scale, Timer, Weighing
from scoring.worker_table import PlannedWorker, Resolution, WorkerTable

_COVER_CHECKS_PER_TICK = 64


@dataclass(frozen=True, slots=True)
class PlannerLimits:
    """How much the planner holds.

    Attributes:
        max_workers: further ones are refused with `TooManyWorkersError`.
        max_open_plans: beyond them `Planner.plan` raises `TooManyRequestsError`.
        max_decisions: the oldest leave the log; 10 KiB each at most.
        max_plan_age_s: a plan that nobody finished is given up by `Planner.tick`, and counted.
        max_sessions: whose ranks the policy ``session`` remembers; the one that is idle longest goes.
        max_session_idle_s: a session that comes back after more than that is a new one.
        key_memo_bytes: tokens and block keys of long prompts that may grow; those that were not seen the longest go.
    """

    max_workers: int = 1_024
    max_open_plans: int = 32_768
    max_decisions: int = 4_000
    max_plan_age_s: float = 4 * 3_600.0
    max_sessions: int = MAX_SESSIONS
    max_session_idle_s: float = MAX_IDLE_S
    key_memo_bytes: int = 64 << 20


class Planner:
    """Decides where requests go, and accounts for them until they end.

    Args:
        index: who holds what; whatever it raises is counted and survived.
        policy: how ranks are ordered.
        engine_model: configured and default rates together.
        configured: which rates the operator set; None for those that depart from the default model.
        rng: draws between equals.
        timer: nanoseconds, for ``timing_us``.
    """

    def __init__(
        self,
        index: PrefixIndex,
        *,
        policy: PolicyName,
        rng: Random,
        engine_model: EngineModel = DEFAULT_ENGINE_MODEL,
        configured: Collection[RateName] | None = None,
        limits: PlannerLimits = PlannerLimits(),
        timer: Timer = perf_counter_ns,
    ) -> None:
        self._policy_name = policy
        self._policy = make_policy(policy, limits.max_sessions, limits.max_session_idle_s)
        self._rng = rng
        self._dry_rng = Random(rng.getrandbits(64))  # a dry run leaves later draws alone
        self._limits = limits
        self._timer = timer
        self._index = GuardedIndex(index)
        self._rates = RateTable(engine_model, configured)
        self._scale = Scale(self._index, self._rates, timer, KeyMemo(limits.key_memo_bytes))
        self._table = WorkerTable(limits.max_workers)
        self._log = DecisionLog(limits.max_decisions)
        self._counters = PlannerCounters(
            index_failures=self._index.failures, reuse=ReuseSums(hit_weights(engine_model))
        )
        self._open = OpenPlans(limits.max_open_plans)
        self._watch: RoomWatch = together(())

    def bound(self, capacity: Capacity, *watches: RoomWatch) -> None:
        """Give each rank no more than this at once, and tell these, one a relay, when there may be room."""
        self._watch = together(watches)
        self._table.bound(capacity)

    # -- the relay's side -------------------------------------------------------------------------

    def plan(self, request: PlanRequest, now: float) -> Plan:
        """Choose a rank and book its load. O(ranks) and one lookup.

        Raises:
            NoCandidateError: nobody can take it; nothing is booked.
            TooManyRequestsError: too many plans are open; nothing is booked.
        """
        if self._open.is_full:
            self._counters.refused += 1
            raise TooManyRequestsError(f"{len(self._open)} requests are in flight")
        started = self._timer()
        weighing, ranking = self._decide(request, self._rng, now)
        decision = self._record(weighing, ranking, started, now)
        self._log.append(decision)
        if not ranking.options:
            self._counters.no_candidate += 1
            raise NoCandidateError(decision)
        self._counters.plans[self._policy_name, ranking.reason] += 1
        option = ranking.options[0]
        rank = option.row.rank
        self._policy.chose(weighing, option.row, now)
        opened = open_plan(weighing, option, now)
        plan_id = self._open.add(opened)
        prompt = opened.known_prompt
        if prompt is not None:
            self._index.predict(rank, prompt, now)
        spec = option.row.entry.spec
        matched = option.match.matched_tokens if option.match is not None else 0
        return Plan(plan_id, rank, spec.url, decision, spec.dp_ranks, matched, opened.pin)

    def takers(self, request: PlanRequest) -> frozenset[Rank]:
        """Ranks that may ever take the request, free or not, well or not. O(ranks)."""
        return takers_of(request, self._resolve(request))

    def first_byte(self, plan_id: int, now: float) -> None:
        """The first byte of the answer's content came: prefill is over. Idempotent, O(blocks)."""
        plan = self._open.get(plan_id)
        if plan is None:
            self._counters.unknown_first_bytes += 1
            return
        if plan.first_byte_at is not None:
            return
        plan.first_byte_at = now
        self._open.end_prefill(plan_id, plan)
        if plan.is_streaming:
            self._observe(plan, now)

    def finish(self, plan_id: int, outcome: Outcome, now: float) -> None:
        """Release what was booked and learn from the answer, or take back what was predicted.

        O(blocks), and O(open plans) where the request came to nothing. Unknown ids, and ids finished
        before, are ignored and counted.
        """
        plan = self._open.close(plan_id)
        if plan is None:
            self._counters.unknown_finishes += 1
            return
        self._policy.ended(plan.row, plan.prompt)
        self._counters.outcomes[outcome.kind] += 1
        if outcome.kind is OutcomeKind.COMPLETED:
            self._learn(plan, outcome, now)
        else:
            self._withdraw(plan)
        if self._watch.is_waited_for and plan.lease.takes_place:
            self._watch.rank_freed(plan.row.rank)

    # -- the operator's side ----------------------------------------------------------------------

    def add_worker(self, spec: WorkerSpec) -> None:
        """Add a worker, or take what changed about a known one; its load and marks are kept.

        Raises:
            TooManyWorkersError: it is new and the table is full.
        """
        known = self._table.entry(spec.worker)
        before = known.rows if known is not None else ()
        self._table.add(spec)
        self._rates.speeds.add(spec.worker, spec.model)
        for row in before:
            if row.rank.dp_rank not in spec.dp_ranks:
                self._policy.forget(row)
        self._watch.workers_changed()

    def remove_worker(self, worker: WorkerId) -> None:
        """Forget a worker. Plans that are open on it end as they would, and teach nothing."""
        entry = self._table.remove(worker)
        self._rates.speeds.remove(worker)
        for row in entry.rows if entry is not None else ():
            self._policy.forget(row)
        self._watch.workers_changed()

    def set_draining(self, worker: WorkerId, is_draining: bool) -> bool:
        """Give a worker no more requests, or again; False if it is unknown."""
        entry = self._table.entry(worker)
        if entry is None:
            return False
        if entry.is_draining is not is_draining:
            entry.is_draining = is_draining
            entry.settle()
            self._watch.marks_changed()
        return True

    def set_excluded(self, worker: WorkerId, reason: Exclusion | None) -> bool:
        """Give a worker no requests for this reason, None to lift it; False if it is unknown."""
        entry = self._table.entry(worker)
        if entry is None:
            return False
        if entry.excluded is not reason:
            entry.excluded = reason
            entry.settle()
            self._watch.marks_changed()
        return True

    def tick(self, now: float) -> None:
        """What time alone changes; call it about every second. O(plans that are not streamed).

        Prefill weights that have fallen to 0 become decode, so do those of prompts that the rank's
        blocks cover by now (64 are looked up, in turn), and plans beyond their age are given up.
        """
        for row in self._table.rows():
            row.book.settle(now)
        self._look_for_cover(now)
        for plan_id in self._open.decided_before(now - self._limits.max_plan_age_s):
            plan = self._open.close(plan_id)
            if plan is not None:
                self._policy.ended(plan.row, plan.prompt)
                self._withdraw(plan)
                self._counters.expired += 1
                if plan.lease.takes_place:
                    self._watch.rank_freed(plan.row.rank)

    # -- questions --------------------------------------------------------------------------------

    def explain(
        self, request: PlanRequest, now: float, *, all_candidates: bool = False
    ) -> Decision:
        """What `plan` would decide. Books, predicts, logs and counts nothing."""
        started = self._timer()
        weighing, ranking = self._decide(request, self._dry_rng, now)
        limit = None if all_candidates else MAX_CANDIDATES
        return self._record(weighing, ranking, started, now, limit)

    def decisions(self, limit: int) -> list[Decision]:
        """The last decisions, newest first."""
        return self._log.newest(limit)

    def decision(self, request_id: str) -> Decision | None:
        """The last decision about a request; None if it is unknown or has left the log."""
        return self._log.find(request_id)

    def workers(self) -> list[PlannedWorker]:
        """All workers, in the order in which they came."""
        speeds = self._rates.speeds
        return [
            PlannedWorker(
                entry.spec,
                entry.is_draining,
                entry.excluded,
                speeds.speed(entry.spec.worker),
                speeds.num_samples(entry.spec.worker),
            )
            for entry in self._table.entries()
        ]

    def rank_loads(self, now: float) -> list[RankLoad]:
        """What every rank is busy with."""
        return self._table.loads(now)

    def models(self) -> list[str]:
        """Names of the models served, sorted; without aliases and adapters."""
        return self._table.models()

    def served_names(self) -> list[str]:
        """Every name that a request may use: models, aliases and adapters, sorted."""
        return self._table.served_names()

    def counters(self) -> PlannerCounters:
        """A snapshot of the counters."""
        self._counters.open_plans = len(self._open)
        return self._counters.copy()

    # -- inside -----------------------------------------------------------------------------------

    def _decide(self, request: PlanRequest, rng: Random, now: float) -> tuple[Weighing, Ranking]:
        weighing = self._scale.weigh(request, self._resolve(request), now)
        options = weighing.options
        if not options:
            return weighing, NOBODY
        if len(options) == 1:
            return weighing, Ranking(options, Reason.ONLY_CANDIDATE)
        return weighing, self._policy.order(weighing, rng, now)

    def _resolve(self, request: PlanRequest) -> Resolution:
        resolution = self._table.resolve(request.model, request.adapter)
        if request.model is None and request.api == UNROUTED_API and not resolution.rows:
            return self._table.everyone()
        return resolution

    def _record(
        self,
        weighing: Weighing,
        ranking: Ranking,
        started_ns: int,
        now: float,
        limit: int | None = MAX_CANDIDATES,
    ) -> Decision:
        candidates = candidates_of(weighing, ranking, self._index, now, limit)
        best = ranking.options[0].row.rank.worker if ranking.options else None
        rates = self._rates.rates(best) if best is not None else None
        keys_ns = weighing.prompt.keys_ns if weighing.prompt is not None else 0
        score_ns = self._timer() - started_ns - weighing.match_ns - keys_ns
        return decision_of(weighing, ranking, self._policy_name, candidates, rates, score_ns)

    def _look_for_cover(self, now: float) -> None:
        """End the prefill of prompts that their rank's blocks cover; who was looked up goes last."""
        for plan_id, plan in self._open.next_falling(_COVER_CHECKS_PER_TICK):
            prompt = plan.known_prompt
            if prompt is None or not self._table.has(plan.row):
                continue
            found = self._index.match(prompt, [plan.row.rank], now)
            if found is not None and is_covered(found[0], plan):
                self._open.end_prefill(plan_id, plan)

    def _observe(self, plan: OpenPlan, now: float) -> None:
        prompt = plan.known_prompt
        if prompt is None or plan.is_observed or not self._table.has(plan.row):
            return
        plan.is_observed = True
        self._index.observe(plan.row.rank, prompt, now)

    def _withdraw(self, plan: OpenPlan) -> None:
        """Without a first byte nothing shows that the rank computed, or will compute, the prompt."""
        prompt = plan.known_prompt
        if prompt is None or plan.is_observed or not self._table.has(plan.row):
            return
        self._index.withdraw(plan.row.rank, prompt, self._open.under_way(plan.row))

    def _learn(self, plan: OpenPlan, outcome: Outcome, now: float) -> None:
        if not self._table.has(plan.row):
            self._counters.gone += 1
            return
        self._observe(plan, now)
        prompt = plan.known_prompt
        if prompt is not None and plan.match is not None:
            cached = None if prompt.is_recomputed else outcome.cached_tokens
            self._index.report(plan.row.rank, prompt, cached, plan.match, plan.decided_at, now)
        self._count_reuse(plan, outcome)
        sample = speed_sample(plan, outcome, self._rates.model)
        if isinstance(sample, NoSample):
            self._counters.no_samples[sample] += 1
            return
        self._counters.speed_samples += 1
        self._rates.speeds.learn(plan.row.rank.worker, *sample)

    def _count_reuse(self, plan: OpenPlan, outcome: Outcome) -> None:
        length, match, cached = plan.prompt_tokens, plan.match, outcome.cached_tokens
        if length is None or (plan.prompt is not None and plan.prompt.is_cut):
            return
        if outcome.prompt_tokens is not None:
            if outcome.prompt_tokens == length:
                self._counters.lengths_equal += 1
            else:
                self._counters.lengths_differ += 1
        if match is not None and cached is not None:
            self._counters.reuse.add(match, length, cached)

    def check(self) -> None:
        """Verify all invariants: what is booked is what open plans hold, and the tables agree."""
        self._table.check()
        self._log.check()
        self._rates.speeds.check()
        self._open.check(row.book for row in self._table.rows())
        self._policy.check()
        known = {entry.spec.worker for entry in self._table.entries()}
        assert set(self._rates.speeds.workers()) == known, known
