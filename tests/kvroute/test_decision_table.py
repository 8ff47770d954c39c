"""The table of a decision: numbers stay whole at every width, names give way in their middle."""

import io
import re

import pytest
from rich.console import Console

from kvroute.decision_table import caption, decision_tables, reading, shortened
from kvroute.unrouted import why_unrouted
from loadgen import CandidateView, DecisionView, RankNameView
from prompt import NoTokensReason
from router.counters import UnroutedReason

TERMS = {"queue": 1_234.5, "prefill": 12_345.6, "load_back": 48.25, "fetch": 0.0, "decode": 4.0}


def pod(index: int, **changes: object) -> CandidateView:
    fields: dict[str, object] = {
        "worker": f"sglang-{index}.sglang.serving.svc.cluster.local:30000", "dp_rank": 0,
        "eligible": True, "excluded_by": None, "trust": "rebuilding", "block_size": 64,
        "gpu_blocks": 1_777, "host_pinned_blocks": 2_022, "storage_blocks": 3_033,
        "predicted_blocks": 0, "observed_blocks": 0, "matched_tokens": 113_728, "in_flight": 64,
        "queued_prefill_tokens": 262_144, "terms_ms": TERMS, "cost_ms": 13_632.35,
    }  # fmt: skip
    return CandidateView.model_validate(fields | changes)


def decision(*candidates: CandidateView) -> DecisionView:
    first = candidates[0]
    return DecisionView(
        request_id="r",
        model="m",
        api="chat",
        policy="cost",
        prompt_tokens=120_000,
        chosen=RankNameView(worker=first.worker, dp_rank=first.dp_rank),
        reason="lowest_cost",
        candidates=candidates,
    )


def printed(shown: DecisionView, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for table in decision_tables(shown, width):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


FLEET = decision(
    pod(0),
    pod(1, predicted_blocks=4_044, observed_blocks=1_055),
    pod(2, excluded_by="prompt_too_long", terms_ms={}, cost_ms=None),
)


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_every_number_is_whole_and_every_row_one_line(width: int) -> None:
    lines = printed(FLEET, width)
    text = "\n".join(lines)
    words = set(re.split(r"\s+", text))
    whole = {
        *("13,632.4", "1,234.5", "12,345.6", "48.2", "4.0", "1,777", "2,022", "3,033", "4,044"),
        *("1,055", "113,728", "64/262,144", "rebuilding", "prompt_too_long", "cost", "trust"),
    }
    assert whole <= words
    assert max(map(len, lines)) <= width
    tables = text.count("rank ")
    assert len(lines) == tables * (1 + len(FLEET.candidates))
    assert text.count("→") == tables


@pytest.mark.parametrize("width", [80, 100])
def test_ranks_keep_both_ends(width: int) -> None:
    lines = [line for line in printed(FLEET, width) if "sglang" in line]
    for index, line in enumerate(lines):
        assert f"sglang-{index % 3}." in line
        assert "…" in line
        assert "0000/0 " in line


def test_cost_comes_first_and_terms_that_are_nothing_to_anybody_do_not_come() -> None:
    small = pod(0, terms_ms={"queue": 0.0, "prefill": 1.6, "fetch": 0.0}, cost_ms=1.6)
    heading, row = printed(decision(small), 140)
    assert heading.split()[:3] == ["rank", "cost", "prefill"]
    assert "queue" not in heading
    assert "fetch" not in heading
    assert "excluded" not in heading
    assert "…" not in row


def test_a_small_fleet_needs_one_table_at_80_columns() -> None:
    terms = {"queue": 0.0, "prefill": 186.6, "load_back": 48.0, "fetch": 0.0, "decode": 4.0}
    usual = {
        "gpu_blocks": 8,
        "host_pinned_blocks": 30,
        "storage_blocks": 0,
        "matched_tokens": 1_920,
    }
    quiet = {"in_flight": 2, "queued_prefill_tokens": 0, "trust": "exact", "terms_ms": terms}
    assert len(printed(decision(pod(0, **usual, **quiet, cost_ms=238.6)), 80)) == 2


def test_the_source_of_storage_blocks_has_a_column_where_there_is_one() -> None:
    heading, first, second = printed(decision(pod(0, storage_source="inferred"), pod(1)), 200)
    assert "L3 by" in heading
    assert "inferred" in first
    assert "inferred" not in second
    assert "L3 by" not in printed(decision(pod(0)), 200)[0]


def test_the_caption_explains_the_columns_that_are_there() -> None:
    assert "L3 by: what says so" in caption(decision(pod(0, storage_source="inferred")))
    assert "back: host to GPU" in caption(decision(pod(0)))
    plain = caption(decision(pod(0, terms_ms={"prefill": 1.0})))
    assert "L3 by" not in plain
    assert "back:" not in plain


def test_nobody_at_all_is_a_heading() -> None:
    shown = FLEET.model_copy(update={"candidates": (), "chosen": None})
    assert printed(shown, 80)[0].split()[:2] == ["rank", "cost"]


@pytest.mark.parametrize(
    ("names", "width", "expected"),
    [
        (["short"], 5, ["short"]),
        (["abcdefghijkl"], 10, ["abcdef…jkl"]),
        (["aaaaaaaaa1xxxxx", "aaaaaaaaa2xxxxx"], 10, ["aaa…1xxxxx", "aaa…2xxxxx"]),
    ],
)
def test_names_are_cut_where_they_stay_apart(
    names: list[str], width: int, expected: list[str]
) -> None:
    assert shortened(names, width) == expected


@pytest.mark.parametrize("reason", [*NoTokensReason, *UnroutedReason])
def test_why_there_are_no_tokens_is_said_in_words(reason: str) -> None:
    nobody = decision(pod(0))
    told = reading(nobody.model_copy(update={"prompt_tokens": None, "unrouted_by": reason}))
    assert told.startswith("A prompt of unknown length")
    assert f"({reason})." in told
    assert why_unrouted(reason) != reason


def test_a_reason_of_a_newer_router_is_shown_as_it_is() -> None:
    told = reading(
        decision(pod(0)).model_copy(update={"prompt_tokens": None, "unrouted_by": "new"})
    )
    assert told.endswith(" By load alone: new.")


def test_where_a_prompt_was_cut_is_said() -> None:
    told = reading(decision(pod(0)).model_copy(update={"is_cut": True}))
    assert "prompt tokens, cut before its first image, of " in told
    assert "By load alone" not in told
