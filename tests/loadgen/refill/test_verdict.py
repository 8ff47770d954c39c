"""What the refill story must show: each requirement fails by name when it is not met."""

import io
from dataclasses import replace

import orjson
import pytest
from rich.console import Console

from loadgen import FindingView, RankNameView, percentiles
from loadgen.refill import RefillRun, RefillSpec, Requirements, refill_table, shortfalls
from loadgen.refill.verdict import UNANNOUNCED

RANKS = (RankNameView(worker="w1", dp_rank=0),)
FINDING = FindingView(kind=UNANNOUNCED, ranks=RANKS, evidence={"removals": 9})
ANNOUNCED = RefillRun(
    decisions=344,
    prefixes=128,
    tokens_refilled=360_448,
    storage_tokens_fetched=360_448,
    refilled_while_deciding=0,
    tokens_loaded_back=360_448,
    tokens_demoted=360_448,
    truth_host_only=340,
    decisions_with_host_pinned=340,
    mismatches=0,
    host_tokens_evicted=360_448,
    host_copies_left=0,
    mismatches_afterwards=0,
    removes_of_unknown=0,
    cached_token_share=0.98,
    ttft_ms=percentiles([1.0, 2.0]),
)
MUTED = replace(
    ANNOUNCED,
    decisions_with_host_pinned=0,
    mismatches=999,
    mismatches_afterwards=99,
    removes_of_unknown=5,
    findings=(FINDING,),
    first_findings={UNANNOUNCED: 2},
)
FULL = Requirements.of(RefillSpec())


def test_full_size_requirements() -> None:
    assert Requirements(344, 100, 169_472, 300, 360_448, 50) == FULL


def test_a_smaller_story_has_smaller_ones() -> None:
    spec = RefillSpec(num_workers=4, num_prefixes=16, host_prefixes=8, gpu_prefixes=2, decisions=40)
    assert Requirements.of(spec) == Requirements(40, 16, 169_472 * 32 // 256, 34, 32 * 22 * 64, 50)


def test_a_story_that_holds() -> None:
    assert shortfalls(ANNOUNCED, MUTED, FULL) == []


FAULTS = [
    (replace(ANNOUNCED, mismatches=1), MUTED, "announced: mismatches is 0: 1"),
    (replace(ANNOUNCED, truth_host_only=299), MUTED, "announced: truth_host_only"),
    (replace(ANNOUNCED, tokens_refilled=169_471), MUTED, "announced: tokens_refilled"),
    (replace(ANNOUNCED, decisions=343), MUTED, "announced: decisions ≥ 344"),
    (replace(ANNOUNCED, host_tokens_evicted=360_447), MUTED, "announced: host_tokens_evicted"),
    (replace(ANNOUNCED, host_copies_left=1), MUTED, "announced: host_copies_left is 0"),
    (replace(ANNOUNCED, mismatches_afterwards=1), MUTED, "announced: mismatches_afterwards"),
    (replace(ANNOUNCED, prefixes=99), MUTED, "announced: prefixes"),
    (replace(ANNOUNCED, findings=(FINDING,)), MUTED, "announced: no finding"),
    (replace(ANNOUNCED, first_findings={"x": 3}), MUTED, "announced: no finding"),
    (replace(ANNOUNCED, removes_of_unknown=1), MUTED, "announced: removes_of_unknown"),
    (replace(ANNOUNCED, decisions_with_host_pinned=0), MUTED, "announced: decisions_with_host"),
    (ANNOUNCED, replace(MUTED, truth_host_only=299), "muted: truth_host_only"),
    (ANNOUNCED, replace(MUTED, decisions_with_host_pinned=1), "muted: decisions_with_host"),
    (ANNOUNCED, replace(MUTED, removes_of_unknown=0), "muted: removes_of_unknown"),
    (ANNOUNCED, replace(MUTED, first_findings={}), f"muted: {UNANNOUNCED}"),
    (ANNOUNCED, replace(MUTED, first_findings={UNANNOUNCED: 51}), f"muted: {UNANNOUNCED}"),
    (ANNOUNCED, replace(MUTED, tokens_refilled=169_471), "muted: tokens_refilled"),
    (ANNOUNCED, replace(MUTED, host_tokens_evicted=0), "muted: host_tokens_evicted"),
    (ANNOUNCED, replace(MUTED, host_copies_left=1), "muted: host_copies_left"),
    (
        ANNOUNCED,
        replace(MUTED, findings=(FINDING.model_copy(update={"evidence": {}}),)),
        f"muted: {UNANNOUNCED} has",
    ),
    (
        ANNOUNCED,
        replace(MUTED, findings=(FINDING.model_copy(update={"ranks": ()}),)),
        f"muted: {UNANNOUNCED} has",
    ),
    (ANNOUNCED, replace(MUTED, findings=()), f"muted: {UNANNOUNCED}"),
]


@pytest.mark.parametrize(("announced", "muted", "line"), FAULTS)
def test_each_requirement_fails_by_name(announced: RefillRun, muted: RefillRun, line: str) -> None:
    (short,) = shortfalls(announced, muted, FULL)
    assert short.startswith(line)


def test_the_table_tells_both() -> None:
    """Each row on a line of its own at 80 columns, and the finding's decision on one more."""
    console = Console(file=io.StringIO(), width=80)
    console.print(refill_table({"announced": ANNOUNCED, "muted": MUTED}, RefillSpec()))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("\n") == 14
    assert "344 over 128 prefixes" in text
    assert f" {UNANNOUNCED}\n" in text
    assert "(decision 2)\n" in text
    assert "none" in text
    assert "TTFT ms (p50 / p99, engine ×10)" in text


def test_a_story_below_full_size_has_no_times() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(refill_table({"announced": ANNOUNCED}, RefillSpec(decisions=343)))
    assert isinstance(console.file, io.StringIO)
    assert "TTFT" not in console.file.getvalue()


def test_json_holds_the_findings_with_their_evidence() -> None:
    run = replace(MUTED, findings=(FindingView(kind=UNANNOUNCED, evidence={"hits": 3}),))
    told = orjson.loads(orjson.dumps(run.to_json()))
    assert told["findings"][0]["evidence"] == {"hits": 3}
    assert told["ttft_ms"]["p50"] == 1.5
    assert told["first_findings"] == {UNANNOUNCED: 2}
