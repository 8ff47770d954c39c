from collections import Counter

from benchmarks.bench_refill_storm import Phase, rows_of


def phase(ms: float, **told: int) -> Phase:
    return Phase(2.0, [ms], [ms], [ms], told=Counter(told))


def test_a_figure_of_the_storm_stands_beside_the_calms() -> None:
    rows = rows_of([phase(1.0, events=10)], [phase(3.0, events=40, refilled_tokens=100)])
    found = {row.name: (row.value, row.unit, row.ratio) for row in rows}
    assert found["storm_lag_p99"] == (3.0, "ms", 3.0)
    assert found["calm_events"] == (5.0, "events/s", None)
    assert found["storm_events"] == (20.0, "events/s", 4.0)
    assert found["storm_refilled_tokens"] == (50.0, "tokens/s", None)
    assert found["storm_errors"] == (0.0, "answers", None)
