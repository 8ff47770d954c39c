"""A short soak leaves nothing behind, and a long one would say so if it did."""

from collections import Counter

import pytest

from benchmarks.soak import Left, rows_of, soak
from benchmarks.soak_traffic import Tally


@pytest.mark.e2e
@pytest.mark.parametrize("policy", ["round_robin", "cost"])
def test_a_short_one_leaves_nothing(policy: str) -> None:
    left = soak(policy, 1_000, seed=3, restart_every_s=0.7)
    rows = {row.name.removeprefix(f"{policy}_"): row for row in rows_of(policy, left)}
    memory = rows.pop("memory_growth")  # all of it is warm-up
    assert not [row.name for row in rows.values() if row.is_beyond]
    assert abs(memory.value) < 50
    assert left.tally.num_requests >= 1_000
    assert left.tally.num_left > 50
    assert left.tally.num_garbage > 10
    assert {200, 400, 503} <= left.tally.statuses.keys()
    assert left.tally.statuses[200] > 600
    assert left.tally.statuses[0] < 50, "answers break off where they were asked to"


def metrics(**changes: float) -> dict[str, float]:
    calm = {
        "leases_open": 0.0,
        "requests_in_flight": 0.0,
        "rank_in_flight{dp_rank=0,worker=w}": 0.0,
        "worker_connections{state=busy}": 0.0,
        "worker_connections{state=idle}": 7.0,
        "connections_open{port=data}": 0.0,
        "requests_total{api=chat,status=2xx}": 90.0,
        "requests_total{api=chat,status=closed}": 10.0,
        "plans_total{policy=cost,reason=lowest_cost}": 120.0,
        "attempts_total{outcome=completed}": 120.0,
    }
    return calm | changes


def beyond(rss_mib: list[float], **changes: float) -> set[str]:
    left = Left(Tally(100, 5, 2, Counter()), rss_mib, metrics(**changes), 1.0)
    return {row.name for row in rows_of("p", left) if row.is_beyond}


FLAT = [50.0, 90.0, 100.0, 100.0, 100.0, 101.0, 100.0, 100.0, 100.0, 101.0]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ("leases_open", "leases"),
        ("requests_in_flight", "requests_in_flight"),
        ("rank_in_flight{dp_rank=0,worker=w}", "booked_requests"),
        ("worker_connections{state=busy}", "busy_connections"),
        ("connections_open{port=data}", "client_connections"),
        ("internal_errors_total", "internal_errors"),
        ("tick_failures_total{part=index}", "tick_failures"),
        ("index_failures_total{verb=match}", "index_failures"),
        ("requests_total{api=chat,status=5xx}", "miscounted"),
        ("attempts_total{outcome=busy}", "unfinished_attempts"),
    ],
)
def test_whatever_is_left_is_beyond_its_bound(changed: str, name: str) -> None:
    assert beyond(FLAT) == set()
    assert beyond(FLAT, **{changed: 1.0}) == {f"p_{name}_left"}


def test_memory_that_grows_on_is_beyond_its_bound() -> None:
    assert beyond([50.0 + step for step in range(100)]) == {"p_memory_growth"}
    assert beyond([90.0 + min(step, 30) for step in range(100)]) == set()
