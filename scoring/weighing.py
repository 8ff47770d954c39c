"""Weighing: one request against every rank, before anything is decided or booked.

Who serves the model, who of them may be chosen, what each of those holds, and what it would cost
there. A plan and a dry run weigh in the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat

from indexer.match import Prompt
from protocol import BlockKey, WorkerId, num_tokens
from scoring.brain import PlanRequest
from scoring.cost import ANSWER_TOKENS, NO_HIT, Price, PromptCost, price, prompt_cost, usable_hit
from scoring.decision import Exclusion
from scoring.key_memo import KeyMemo
from scoring.prefix_index import GuardedIndex
from scoring.ranking import Option
from scoring.rates import CostRates, RateTable
from scoring.shared_match import with_shared
from scoring.worker_table import RankRow, Resolution, WorkerEntry

Timer = Callable[[], int]
"""Nanoseconds of a clock that only moves forward; for ``timing_us`` alone, no decision reads it."""

UNROUTED_API = "other"
"""Of paths that mean no model: any worker will do."""


class TimedPrompt(Prompt):
    """A prompt that knows how long its keys took to make, and whether its reuse proves anything."""

    __slots__ = ("_memo", "_timer", "is_recomputed", "keys_ns")

    def __init__(
        self, request: PlanRequest, resolution: Resolution, timer: Timer, memo: KeyMemo
    ) -> None:
        assert request.tokens is not None
        assert resolution.model is not None
        super().__init__(
            request.tokens,
            resolution.model,
            resolution.adapter,
            _salt(request),
            is_cut=request.is_cut,
            is_approximate=request.is_approximate or request.extra_key is not None,
        )
        self.is_recomputed = request.is_recomputed
        self._timer = timer
        self._memo = memo
        self.keys_ns = 0

    def keys(self, block_size: int, *, is_eagle: bool = False) -> list[BlockKey]:
        """Keys of the prompt's full blocks; O(tokens) once a block size, new ones hashed, then O(1)."""
        found = self._keys.get((block_size, is_eagle))
        if found is None:
            started = self._timer()
            hashed = self._memo.hashed(self.tokens, block_size, is_eagle=is_eagle)
            found = self._keys[block_size, is_eagle] = hashed.keys
            self._packed[block_size, is_eagle] = hashed.packed
            self.keys_ns += self._timer() - started
        return found


def _salt(request: PlanRequest) -> str | None:
    """What keeps the request's cache apart. SGLang does not tell the extra keys of its blocks: prompts that have
    one share nothing with what is announced, and with each other what is known from serving them."""
    if request.extra_key is None:
        return request.cache_salt
    return f"\0extra_key:{len(request.extra_key)}:{request.extra_key}{request.cache_salt or ''}"


@dataclass(slots=True)
class Weighing:
    """One request, weighed.

    Attributes:
        prompt: None where the prompt was not tokenized or nobody serves the model.
        prompt_tokens: None where the prompt was not tokenized.
        options: eligible ranks, in the order of the table.
        excluded: ranks of the model that may not be chosen.
        match_ns: time the lookup took, keys apart.
    """

    request: PlanRequest
    resolution: Resolution
    prompt: TimedPrompt | None
    prompt_tokens: int | None
    options: list[Option] = field(default_factory=list)
    excluded: list[tuple[RankRow, Exclusion]] = field(default_factory=list)
    match_ns: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """What ranks are weighed with: the index's knowledge and the workers' rates."""

    index: GuardedIndex
    rates: RateTable
    timer: Timer
    keys: KeyMemo

    def weigh(self, request: PlanRequest, resolution: Resolution, now: float) -> Weighing:
        """Weigh a request. Changes nothing. O(ranks) and one lookup."""
        tokens = request.tokens
        length = None if tokens is None else num_tokens(tokens)
        has_keys = length is not None and resolution.model is not None
        prompt = TimedPrompt(request, resolution, self.timer, self.keys) if has_keys else None
        weighing = Weighing(request, resolution, prompt, length)
        eligible = _eligible(weighing)
        if eligible:
            self._price(weighing, eligible, now)
        return weighing

    def _price(self, weighing: Weighing, eligible: list[RankRow], now: float) -> None:
        prompt, matches = weighing.prompt, None
        if prompt is not None:
            started = self.timer()
            matches = self.index.match(prompt, [row.rank for row in eligible], now)
            api = weighing.request.api
            if matches is not None and weighing.resolution.has_unpinned(api):
                matches = with_shared(eligible, matches, api)
            weighing.match_ns = self.timer() - started - prompt.keys_ns
        length = weighing.prompt_tokens or 0
        limit = weighing.request.max_output_tokens
        answer = ANSWER_TOKENS if limit is None else max(min(limit, ANSWER_TOKENS), 1)
        rates_of, add = self.rates.rates, weighing.options.append
        priced: dict[int, tuple[CostRates, int, PromptCost]] = {}  # by match: like ranks share one
        costs: dict[tuple[int, int, int], Price] = {}  # of ranks that are alike and as busy
        for row, match in zip(eligible, matches or repeat(None)):  # noqa: B905  one of them is endless
            book = row.book
            num_running = book.in_flight
            tokens, work = book.queued(now) if num_running else (0, 0)
            rates = rates_of(row.rank.worker)
            is_stored = match is not None and match.storage_blocks
            threshold = row.entry.spec.fetch_threshold if is_stored else 0
            known = priced.get(id(match))
            if known is not None and known[0] is rates and known[1] == threshold:
                own = known[2]
            else:
                hit = NO_HIT if match is None else usable_hit(match, length)
                own = prompt_cost(rates, length, hit, threshold)
                priced[id(match)] = rates, threshold, own
            state = id(own), work, num_running
            cost = costs.get(state)
            if cost is None:
                cost = price(
                    rates, own, queued_work=work, in_flight=num_running, answer_tokens=answer
                )
                costs[state] = (
                    cost  # which keeps ``own``, and with it the number that stands for it
                )
            add(Option(row, match, cost, num_running, tokens))


def _eligible(weighing: Weighing) -> list[RankRow]:
    """Ranks that may be chosen; the others of the model go to ``excluded``."""
    tried, length = weighing.request.excluded, weighing.prompt_tokens
    is_guess, keeper = weighing.request.is_approximate, weighing.request.keeper
    eligible: list[RankRow] = []
    for row in weighing.resolution.rows:
        entry = row.entry
        reason = entry.blocked if keeper is None else _blocked_for(entry, keeper)
        if reason is None and tried and row.rank in tried:
            reason = Exclusion.ALREADY_TRIED
        if reason is None and length is not None and not is_guess:
            longest = entry.spec.max_model_len
            if longest is not None and length > longest:
                reason = Exclusion.PROMPT_TOO_LONG
        if reason is None:
            eligible.append(row)
        else:
            weighing.excluded.append((row, reason))
    if weighing.resolution.is_bounded and takes_place(weighing.request):
        return _with_room(weighing, eligible)
    return eligible


def _with_room(weighing: Weighing, eligible: list[RankRow]) -> list[RankRow]:
    """Those that are not at their capacity; the others go to ``excluded``, and nothing else keeps them."""
    having: list[RankRow] = []
    for row in eligible:
        if row.book.taken < row.entry.max_in_flight:
            having.append(row)
        else:
            weighing.excluded.append((row, Exclusion.AT_CAPACITY))
    return having


def takes_place(request: PlanRequest) -> bool:
    """Whether a rank's capacity bounds the request: what is asked about what a worker keeps computes nothing."""
    return request.keeper is None or request.api != UNROUTED_API


def _blocked_for(entry: WorkerEntry, keeper: WorkerId) -> Exclusion | None:
    """Why a worker cannot serve what the keeper keeps; the keeper does so while it drains, for nobody else can."""
    return entry.excluded if entry.spec.worker == keeper else Exclusion.NOT_KEEPER
