"""An open plan: one dispatched request, from its decision to its end, and what its end teaches."""

from dataclasses import dataclass

from indexer.match import RankMatch
from protocol import EngineModel
from scoring.brain import Outcome
from scoring.load import Fall, Lease
from scoring.rank_pin import RankPin
from scoring.ranking import Option
from scoring.speeds import MIN_WORK_TOKENS, NoSample
from scoring.weighing import TimedPrompt, Weighing, takes_place
from scoring.worker_table import RankRow


@dataclass(slots=True)
class OpenPlan:
    """What the planner remembers of a request in flight.

    Attributes:
        prompt: None where the prompt was not tokenized.
        option: the chosen rank as it was weighed.
        first_byte_at: monotonic seconds; None before the first byte.
        is_observed: the index was told that the rank holds the prompt.
        pin: how the engine is told the rank.
    """

    row: RankRow
    lease: Lease
    prompt: TimedPrompt | None
    prompt_tokens: int | None
    option: Option
    decided_at: float
    is_streaming: bool
    first_byte_at: float | None = None
    is_observed: bool = False
    pin: RankPin = RankPin.HEADER

    @property
    def known_prompt(self) -> TimedPrompt | None:
        """What the rank is known to be given; None where there are no tokens, or the engine picks the rank."""
        return None if self.pin is RankPin.NONE else self.prompt

    @property
    def match(self) -> RankMatch | None:
        """What the rank held by our knowledge when it was chosen."""
        return self.option.match


def open_plan(weighing: Weighing, option: Option, now: float) -> OpenPlan:
    """Book the chosen option's load."""
    price, request = option.price, weighing.request
    fall = None
    if not request.is_streaming:
        starts_at = now + price.queue_ms / 1e3
        fall = Fall(starts_at, starts_at + price.prompt.ms / 1e3)
    prompt = price.prompt
    lease = option.row.book.open(
        round(prompt.uncached_tokens),
        round(prompt.work),
        fall,
        takes_place=takes_place(request),
    )
    return OpenPlan(
        row=option.row,
        lease=lease,
        prompt=weighing.prompt,
        prompt_tokens=weighing.prompt_tokens,
        option=option,
        decided_at=now,
        is_streaming=request.is_streaming,
        pin=option.row.entry.pin(request.api),
    )


def is_covered(match: RankMatch, plan: OpenPlan) -> bool:
    """Whether the rank's blocks show that it has prefilled the plan's prompt.

    They do if they reach as far as a prefix hit on the prompt can, and did not when it was
    dispatched.
    """
    before = plan.match
    if before is None or plan.prompt_tokens is None or match.block_size != before.block_size:
        return False
    full = max(plan.prompt_tokens - 1, 0) // match.block_size
    return before.gpu_blocks < full <= match.gpu_blocks


def speed_sample(
    plan: OpenPlan, outcome: Outcome, model: EngineModel
) -> tuple[float, float] | NoSample:
    """What a completed answer says about the worker's speed.

    Only a prompt that found no prefill ahead of it tells the time of its own prefill from waiting.
    Where the engine reports other hits than were counted on, the report is believed, and the time of
    restoring them neglected.

    Returns:
        Expected and observed milliseconds from dispatch to the first token, or why there are none.
    """
    if not plan.is_streaming or plan.first_byte_at is None:
        return NoSample.NOT_STREAMED
    length, reported = plan.prompt_tokens, outcome.cached_tokens
    is_cut = plan.prompt is not None and plan.prompt.is_cut
    if length is None or is_cut or (plan.match is None and reported is None):
        return NoSample.NO_TOKENS
    if plan.pin is RankPin.NONE:
        return NoSample.UNKNOWN_RANK
    if plan.option.queued_tokens:
        return NoSample.QUEUED
    hit = plan.option.price.prompt.hit
    cached = hit.gpu + hit.host + hit.storage
    expected_s = model.load_back_s(round(hit.host)) + model.fetch_s(round(hit.storage))
    if reported is not None and reported != cached:
        cached, expected_s = min(max(reported, 0), length), 0.0
    if length - cached < MIN_WORK_TOKENS:
        return NoSample.TOO_SHORT
    observed_s = plan.first_byte_at - plan.decided_at
    if observed_s <= 0:
        return NoSample.NO_TIME
    expected_s += model.prefill_s(round(length - cached), round(cached))
    return expected_s * 1e3, observed_s * 1e3
