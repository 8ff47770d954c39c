"""What a completed answer says about a worker's speed, and when events cover a prompt."""

import pytest

from indexer.match import RankMatch
from indexer.trust import Trust
from protocol import DEFAULT_ENGINE_MODEL
from scoring.brain import Outcome, OutcomeKind
from scoring.cost import NO_HIT, Hit, Price, PromptCost
from scoring.open_plan import OpenPlan, is_covered, speed_sample
from scoring.ranking import Option
from scoring.speeds import NoSample
from scoring.worker_table import RankRow, WorkerEntry
from tests.scoring.fleet import rank, spec

ROW = RankRow(WorkerEntry(spec("w")), rank("w"))


def plan_of(
    prompt_tokens: int | None = 4_096,
    *,
    hit: Hit = NO_HIT,
    gpu_blocks: int | None = 0,
    queued_tokens: int = 0,
    is_streaming: bool = True,
    first_byte_at: float | None = 11.0,
) -> OpenPlan:
    """A plan decided at 10 s, on a rank with blocks of 16; None blocks: no lookup."""
    match = None if gpu_blocks is None else RankMatch(Trust.EXACT, 16, gpu_blocks)
    price = Price(0, 0, 0, PromptCost(0, 0, 0, 0, 0, 0, hit))
    return OpenPlan(
        row=ROW,
        lease=ROW.book.open(0, 0),
        prompt=None,
        prompt_tokens=prompt_tokens,
        option=Option(ROW, match, price, 0, queued_tokens),
        decided_at=10.0,
        is_streaming=is_streaming,
        first_byte_at=first_byte_at,
    )


def answered(cached_tokens: int | None) -> Outcome:
    return Outcome(OutcomeKind.COMPLETED, cached_tokens=cached_tokens)


@pytest.mark.parametrize(
    ("plan", "cached", "expected"),
    [
        (plan_of(is_streaming=False), None, NoSample.NOT_STREAMED),
        (plan_of(first_byte_at=None), None, NoSample.NOT_STREAMED),
        (plan_of(None), None, NoSample.NO_TOKENS),
        (plan_of(gpu_blocks=None), None, NoSample.NO_TOKENS),
        (plan_of(queued_tokens=1), None, NoSample.QUEUED),
        (plan_of(1_023), None, NoSample.TOO_SHORT),
        (plan_of(hit=Hit(3_200, 0, 0)), None, NoSample.TOO_SHORT),
        (plan_of(), 3_200, NoSample.TOO_SHORT),
        (plan_of(first_byte_at=10.0), None, NoSample.NO_TIME),
    ],
)
def test_what_teaches_nothing(plan: OpenPlan, cached: int | None, expected: NoSample) -> None:
    assert speed_sample(plan, answered(cached), DEFAULT_ENGINE_MODEL) is expected


@pytest.mark.parametrize(
    ("plan", "cached", "expected_s"),
    [
        (plan_of(), None, DEFAULT_ENGINE_MODEL.prefill_s(4_096)),
        (plan_of(), 0, DEFAULT_ENGINE_MODEL.prefill_s(4_096)),
        (plan_of(gpu_blocks=None), 1_024, DEFAULT_ENGINE_MODEL.prefill_s(3_072, 1_024)),
        (plan_of(hit=Hit(1_024, 0, 0)), 1_024, DEFAULT_ENGINE_MODEL.prefill_s(3_072, 1_024)),
        (plan_of(hit=Hit(1_024, 0, 0)), 0, DEFAULT_ENGINE_MODEL.prefill_s(4_096)),
        (
            plan_of(hit=Hit(0, 1_024, 1_024)),
            2_048,
            DEFAULT_ENGINE_MODEL.prefill_s(2_048, 2_048) + 1_024 / 40_000 + 1_024 / 13_300,
        ),
        (plan_of(), -5, DEFAULT_ENGINE_MODEL.prefill_s(4_096)),
    ],
)
def test_samples(plan: OpenPlan, cached: int | None, expected_s: float) -> None:
    assert speed_sample(plan, answered(cached), DEFAULT_ENGINE_MODEL) == pytest.approx(
        (expected_s * 1e3, 1_000.0)
    )


@pytest.mark.parametrize(
    ("plan", "gpu_blocks", "expected"),
    [
        (plan_of(65, gpu_blocks=0), 3, False),
        (plan_of(65, gpu_blocks=0), 4, True),
        (plan_of(64, gpu_blocks=0), 3, True),  # the last block is never a hit
        (plan_of(65, gpu_blocks=4), 4, False),  # it was covered all along
        (plan_of(65, gpu_blocks=None), 4, False),
        (plan_of(None, gpu_blocks=0), 4, False),
        (plan_of(10, gpu_blocks=0), 0, False),
    ],
)
def test_cover(plan: OpenPlan, gpu_blocks: int, expected: bool) -> None:
    assert is_covered(RankMatch(Trust.EXACT, 16, gpu_blocks), plan) is expected


def test_cover_at_another_block_size_says_nothing() -> None:
    match = RankMatch(Trust.EXACT, 32, 4)
    assert not is_covered(match, plan_of(65, gpu_blocks=0))
