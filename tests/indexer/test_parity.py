"""Requests that events confirm late, in part, or under keys that are gone."""

import pytest

from indexer.limits import IndexLimits
from protocol import BlockStored
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank


@pytest.mark.parametrize("then", ["held", "removed", "served late"])
def test_parity_holds_however_late_the_events_come(then: str) -> None:
    """On an overloaded rank predictions have timed out by then, and no request is confirmed in time."""
    fleet = SmallFleet("w", limits=IndexLimits(predicted_ttl_s=30.0))
    for i in range(1, 5):
        stores = [BlockStored(names(100 * i, 4), None, blocks(50_000 + 100 * i, 4), SIZE, "GPU")]
        fleet.serve("w", prompt(blocks(1_000 * i, 4)), 0, stores)
    tokens = blocks(9_000, 4)
    request, at_decision = prompt(tokens), fleet.match("w", prompt(tokens))
    decided_at = fleet.now
    fleet.index.predict(rank("w"), request, fleet.now)
    fleet.now += 60.0
    if then == "served late":
        fleet.index.observe(rank("w"), request, fleet.now)
        fleet.index.report(rank("w"), request, 0, at_decision, decided_at, fleet.now)
        assert "parity_broken" in fleet.findings()
    fleet.store("w", names(900, 4), tokens)
    if then == "removed":
        fleet.remove("w", names(900, 4))
    if then != "served late":
        fleet.index.observe(rank("w"), request, fleet.now)
        fleet.index.report(rank("w"), request, 0, at_decision, decided_at, fleet.now)
    assert "parity_broken" not in fleet.findings()
    fleet.wait(20.0)
    assert "parity_broken" not in fleet.findings()


def test_a_burst_whose_answers_begin_after_predictions_have_timed_out() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(predicted_ttl_s=30.0))
    fleet.store("w", names(1, 1), blocks(90_000, 1))
    asked = [prompt(blocks(1_000 * i, 10)) for i in range(1, 5)]
    at_decision = [fleet.match("w", request) for request in asked]
    decided_at = fleet.now
    for request in asked:
        fleet.index.predict(rank("w"), request, fleet.now)
    fleet.wait(35.0)
    for i, request in enumerate(asked):
        fleet.index.observe(rank("w"), request, fleet.now)
        fleet.store("w", names(100 * (i + 1), 10), blocks(1_000 * (i + 1), 10))
        fleet.index.report(rank("w"), request, 0, at_decision[i], decided_at, fleet.now)
    fleet.wait(20.0)
    assert fleet.findings() == {}


def test_a_clear_starts_anew() -> None:
    fleet = SmallFleet("w")
    for i in range(1, 5):
        fleet.serve("w", prompt(blocks(1_000 * i, 4)), 0)
        fleet.store("w", names(100 * i, 4), blocks(50_000 + 100 * i, 4))
    fleet.clear("w")
    fleet.wait(20.0)
    assert "parity_broken" not in fleet.findings()
