"""Runs by tier, and claims against the truth."""

import pytest

from loadgen import CandidateView
from loadgen.refill.truth import RankTruth, Run, WorkerTruth, num_mismatches

HASHES = [11, 12, 13, 14]


def rank(gpu: list[int], host: list[int], *, is_idle: bool = True) -> RankTruth:
    return RankTruth.model_validate(
        {
            "dp_rank": 0,
            "GPU": [str(value) for value in gpu],
            "CPU_PINNED": [str(value) for value in host],
            "CPU_PINNED_in_flight": [],
            "last_seq": 3,
            "is_idle": is_idle,
            "counters": {"tokens_refilled": 5},
        }
    )


def candidate(gpu: int, host: int, *, storage: int = 0, observed: int = 0) -> CandidateView:
    return CandidateView(
        worker="w",
        dp_rank=0,
        eligible=True,
        excluded_by=None,
        trust="exact",
        block_size=64,
        gpu_blocks=gpu,
        host_pinned_blocks=host,
        storage_blocks=storage,
        predicted_blocks=0,
        observed_blocks=observed,
        matched_tokens=0,
        in_flight=0,
        queued_prefill_tokens=0,
        terms_ms={},
        cost_ms=None,
    )


@pytest.mark.parametrize(
    ("gpu", "host", "run"),
    [
        ([], [], Run(0, 0)),
        ([], HASHES, Run(0, 4)),
        (HASHES, HASHES, Run(4, 0)),
        ([11, 12], HASHES, Run(2, 2)),
        ([12], [11, 13], Run(1, 2)),
        ([12, 13, 14], [], Run(0, 0)),
        ([], [11, 13, 14], Run(0, 1)),
        ([], [99], Run(0, 0)),
    ],
)
def test_run(gpu: list[int], host: list[int], run: Run) -> None:
    assert rank(gpu, host).run(HASHES) == run


@pytest.mark.parametrize(
    ("run", "is_host_only"),
    [(Run(0, 4), True), (Run(1, 3), False), (Run(0, 3), False), (Run(0, 0), False)],
)
def test_host_only(run: Run, *, is_host_only: bool) -> None:
    assert run.is_host_only(len(HASHES)) is is_host_only


@pytest.mark.parametrize(
    ("claim", "truth", "mismatches"),
    [
        (candidate(0, 4), Run(0, 4), 0),
        (candidate(4, 0, observed=4), Run(0, 0), 0),
        (candidate(4, 0, observed=1), Run(3, 0), 0),
        (candidate(0, 0), Run(0, 4), 1),
        (candidate(4, 0), Run(0, 4), 2),
        (candidate(0, 0, storage=1), Run(0, 0), 1),
    ],
)
def test_mismatches(claim: CandidateView, truth: Run, mismatches: int) -> None:
    assert num_mismatches(claim, truth) == mismatches


def test_of_a_worker() -> None:
    worker = WorkerTruth(ranks=(rank([], [11]), rank([], [], is_idle=False)))
    assert not worker.is_idle
    assert worker.total("tokens_refilled") == 10
    assert [one.host_copies(HASHES) for one in worker.ranks] == [1, 0]
    assert [one.holds(HASHES) for one in (*worker.ranks, rank([14], []))] == [True, False, True]
