"""A small fleet for tests: an index of plain dicts that tells the truth, and short builders."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from indexer.match import Prompt, RankMatch
from indexer.trust import Trust
from protocol import (
    BlockKey,
    EngineModel,
    Rank,
    Tier,
    TokenBytes,
    WorkerId,
    WorkerSpec,
    pack_tokens,
)
from protocol.engine_model import DEFAULT_ENGINE_MODEL
from scoring.brain import Outcome, OutcomeKind, Plan, PlanRequest
from scoring.planner import Planner, PlannerLimits
from scoring.policies import PolicyName
from scoring.rates import RateName

MODEL = "m"
BLOCK_SIZE = 16
COMPLETED = Outcome(OutcomeKind.COMPLETED)


@dataclass
class TruthIndex:
    """Who holds what, as told; every call is kept.

    ``fault`` is raised by every call while it is set.
    """

    block_size: int = BLOCK_SIZE
    claims: dict[Rank, dict[tuple[str, str | None, BlockKey], Tier]] = field(default_factory=dict)
    predicted: dict[Rank, set[tuple[str, str | None, BlockKey]]] = field(default_factory=dict)
    trusts: dict[Rank, Trust] = field(default_factory=dict)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    fault: Exception | None = None
    lookup_answer: Callable[[list[RankMatch]], list[RankMatch]] = list

    def hold(
        self, rank: Rank, tokens: TokenBytes, tier: Tier = Tier.GPU, *, model: str = MODEL
    ) -> None:
        """The rank holds all full blocks of the tokens on a tier."""
        held = self.claims.setdefault(rank, {})
        for key in self._names(Prompt(tokens, model)):
            held[key] = min(held.get(key, tier), tier)

    def match(self, prompt: Prompt, ranks: Sequence[Rank], now: float) -> list[RankMatch]:
        self._call("match", tuple(ranks))
        return self.lookup_answer([self._match(prompt, rank) for rank in ranks])

    def predict(self, rank: Rank, prompt: Prompt, now: float) -> None:
        self._call("predict", rank)
        self.predicted.setdefault(rank, set()).update(self._names(prompt))

    def withdraw(self, rank: Rank, prompt: Prompt, under_way: Sequence[Prompt]) -> None:
        self._call("withdraw", rank)
        kept = {name for other in under_way for name in self._names(other)}
        self.predicted.setdefault(rank, set()).difference_update({*self._names(prompt)} - kept)

    def observe(self, rank: Rank, prompt: Prompt, now: float) -> None:
        self._call("observe", rank)
        for key in self._names(prompt):
            self.claims.setdefault(rank, {})[key] = Tier.GPU

    def report(
        self,
        rank: Rank,
        prompt: Prompt,
        cached_tokens: int | None,
        at_decision: RankMatch,
        decided_at: float,
        now: float,
    ) -> None:
        self._call("report", rank, cached_tokens, at_decision, decided_at, now)

    def trust(self, rank: Rank, now: float) -> Trust:
        self._call("trust", rank)
        return self.trusts.get(rank, Trust.EXACT)

    def _call(self, *call: object) -> None:
        self.calls.append(call)
        if self.fault is not None:
            raise self.fault

    def _names(self, prompt: Prompt) -> list[tuple[str, str | None, BlockKey]]:
        keys = prompt.keys(self.block_size)
        return [(prompt.model, prompt.adapter, key) for key in keys]

    def _match(self, prompt: Prompt, rank: Rank) -> RankMatch:
        names, claims = self._names(prompt), self.claims.get(rank, {})
        counts = dict.fromkeys(Tier, 0)
        run = 0
        while run < len(names) and names[run] in claims:
            counts[claims[names[run]]] += 1
            run += 1
        predicted, known = 0, self.predicted.get(rank, set())
        while run + predicted < len(names) and names[run + predicted] in known:
            predicted += 1
        return RankMatch(
            self.trusts.get(rank, Trust.EXACT),
            self.block_size,
            counts[Tier.GPU],
            counts[Tier.HOST],
            counts[Tier.STORAGE],
            predicted,
        )


def spec(name: str, **changes: object) -> WorkerSpec:
    """A worker of the model `MODEL`, with these fields changed."""
    fields: dict[str, object] = {"model": MODEL, "block_size": BLOCK_SIZE, **changes}
    return WorkerSpec(WorkerId(name), f"http://{name}", **fields)  # type: ignore[arg-type]


def rank(name: str, dp_rank: int = 0) -> Rank:
    return Rank(WorkerId(name), dp_rank)


def tokens_of(num_tokens: int, seed: int = 0) -> TokenBytes:
    """A prompt of random tokens; another seed shares nothing with it."""
    rng = Random(seed)
    return pack_tokens([rng.randrange(50_000) for _ in range(num_tokens)])


def joined(*parts: TokenBytes) -> TokenBytes:
    return TokenBytes(b"".join(parts))


def request(
    tokens: TokenBytes | None,
    request_id: str = "r",
    *,
    model: str | None = MODEL,
    is_streaming: bool = True,
    excluded: Iterable[Rank] = (),
    adapter: str | None = None,
    max_output_tokens: int | None = None,
    session: str | None = None,
) -> PlanRequest:
    return PlanRequest(
        request_id=request_id,
        api="chat",
        model=model,
        tokens=tokens,
        time=1_790_000_000.0,
        adapter=adapter,
        max_output_tokens=max_output_tokens,
        is_streaming=is_streaming,
        excluded=frozenset(excluded),
        session=session,
    )


class StepTimer:
    """A timer that moves 1 µs a reading."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def planner_of(
    index: TruthIndex,
    *names: str,
    policy: PolicyName = PolicyName.COST,
    seed: int = 1,
    engine_model: EngineModel = DEFAULT_ENGINE_MODEL,
    configured: Iterable[RateName] | None = None,
    limits: PlannerLimits | None = None,
) -> Planner:
    """A planner over workers with these names, each of one rank."""
    planner = Planner(
        index,
        policy=policy,
        rng=Random(seed),
        engine_model=engine_model,
        configured=None if configured is None else frozenset(configured),
        limits=limits or PlannerLimits(),
        timer=StepTimer(),
    )
    for name in names:
        planner.add_worker(spec(name))
    return planner


def serve(planner: Planner, plan: Plan, now: float, outcome: Outcome = COMPLETED) -> None:
    """The request is answered at once."""
    planner.first_byte(plan.plan_id, now)
    planner.finish(plan.plan_id, outcome, now)


def load_rank(planner: Planner, name: str, num_requests: int, now: float = 0.0) -> list[Plan]:
    """Put requests of unknown length on one worker, past their first byte and unfinished."""
    others = [state.spec.worker for state in planner.workers() if state.spec.worker != name]
    tried = [other for worker in others for other in (Rank(worker, 0),)]
    plans = [
        planner.plan(request(None, f"load-{name}-{number}", excluded=tried), now)
        for number in range(num_requests)
    ]
    for plan in plans:
        planner.first_byte(plan.plan_id, now)
    return plans


def verbs(index: TruthIndex) -> list[object]:
    """What the index was asked and told, in order."""
    return [call[0] for call in index.calls]


def loads(planner: Planner, now: float = 0.0) -> list[tuple[int, int, int]]:
    """In flight, queued prefill tokens and decoding requests of each rank."""
    return [
        (load.in_flight, load.queued_prefill_tokens, load.decode_requests)
        for load in planner.rank_loads(now)
    ]
