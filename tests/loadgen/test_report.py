"""Percentiles and summaries."""

import io

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from loadgen import (
    Answer,
    ErrorKind,
    Usage,
    error_lines,
    load_table,
    percentile,
    percentiles,
    run_table,
    summarise,
)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 0.99, 7.0),
        ([1.0, 2.0], 0.5, 1.5),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0], 0.0, 1.0),
        ([1.0, 2.0, 3.0], 1.0, 3.0),
        ([float(i) for i in range(101)], 0.99, 99.0),
    ],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_percentiles_are_in_order(values: list[float]) -> None:
    summary = percentiles(values)
    assert summary is not None
    assert summary.count == len(values)
    assert summary.p50 <= summary.p90 <= summary.p99 <= summary.max == round(max(values), 3)


def test_nothing_has_no_percentiles() -> None:
    assert percentiles([]) is None


ANSWERS = [
    Answer(
        0,
        0.0,
        status=200,
        ttft_ms=10.0,
        total_ms=30.0,
        inter_token_ms=(5.0, 15.0),
        usage=Usage(100, 60, 3),
        worker="w1",
    ),
    Answer(1, 0.1, status=200, ttft_ms=20.0, total_ms=20.0, usage=Usage(300, 0, 1), worker="w2"),
    Answer(2, 0.2, status=200, ttft_ms=30.0, total_ms=40.0, usage=Usage(500, None, 1), worker="w1"),
    Answer(3, 0.3, status=503, error=ErrorKind.BUSY, detail="no worker", usage=Usage(900, 900, 9)),
    Answer(4, 0.4, error=ErrorKind.TIMED_OUT),
    Answer(5, 0.5, status=429, error=ErrorKind.BUSY, detail="later"),
]


def test_summary_counts_reuse_only_where_it_is_reported() -> None:
    report = summarise(ANSWERS, 2.0)
    assert (report.requests, report.errors) == (6, 3)
    assert report.errors_by_kind == {"busy": 2, "timed_out": 1}
    assert report.first_errors["busy"] == "no worker"
    assert (report.prompt_tokens, report.cached_tokens) == (400, 60)
    assert report.cached_token_share == 0.15
    assert report.output_tokens == 5
    assert report.ttft_ms is not None
    assert report.ttft_ms.p50 == 20.0
    assert report.inter_token_ms is not None
    assert report.inter_token_ms.count == 2
    assert report.requests_by_worker == {"w1": 2, "w2": 1}


def test_of_nothing_there_is_a_report_too() -> None:
    report = summarise([], 0.0)
    assert report.cached_token_share is None
    assert orjson.loads(orjson.dumps(report.to_json()))["ttft_ms"] is None


def test_table_has_a_column_a_run() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(load_table({"one": summarise(ANSWERS, 2.0), "two": summarise([], 0.0)}))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "one" in text
    assert "3 (busy 2, timed_out 1)" in text
    assert "15.0%" in text
    assert "20.0 / 28.0 / 29.8" in text


def test_one_run_alone_tells_its_workers_and_of_many_the_busiest() -> None:
    many = [Answer(i, 0.0, status=200, worker=f"[w{i}]") for i in range(20)]
    busy = [Answer(20 + i, 0.0, status=200, worker="[w19]") for i in range(5)]
    console = Console(file=io.StringIO(), width=120)
    console.print(run_table("trace", summarise(many + busy, 1.0)))
    assert isinstance(console.file, io.StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines() if "requests by" in line]
    assert ["requests", "by", "[w19]", "6"] in rows
    assert rows[-1] == ["requests", "by", "4", "further", "workers", "4"]
    assert len(rows) == 17


def test_errors_are_a_line_a_kind() -> None:
    assert error_lines(summarise(ANSWERS, 1.0)) == [
        "busy: no worker (2×)",
        "timed_out: no details (1×)",
    ]
