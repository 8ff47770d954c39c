"""Claims that are older than a loss: how long they are kept, and what confirms them."""

import pytest

from indexer.actions import ForgetReason
from indexer.trust import Trust
from tests.indexer.served_prompt import TOKENS, A, counts, store
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank


def test_claims_older_than_a_loss_are_doubtful_and_age_out() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 4), store(0, 4, "CPU"))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    fleet.store("w", names(50, 2), blocks(5_000, 2))
    assert (fleet.state("w").doubtful, fleet.trust("w")) == (8, Trust.DEGRADED)
    assert counts(fleet) == (4, 0, 0)
    fleet.wait(599.0)
    assert counts(fleet) == (4, 0, 0)
    fleet.wait(2.0)
    assert counts(fleet) == (0, 0, 0)
    assert fleet.match("w", prompt(blocks(5_000, 2))).gpu_blocks == 2
    assert fleet.trust("w") is Trust.JOINED


def test_each_loss_leaves_claims_their_own_time() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 4))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    fleet.wait(590.0)
    fleet.store("w", names(50, 2), blocks(5_000, 2))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.wait(11.0)
    later = prompt([*blocks(5_000, 2), 1])
    assert (counts(fleet), fleet.match("w", later).gpu_blocks) == ((0, 0, 0), 2)
    assert fleet.trust("w") is Trust.DEGRADED
    fleet.wait(588.0)
    assert fleet.match("w", later).gpu_blocks == 2
    fleet.wait(2.0)
    assert fleet.match("w", later).gpu_blocks == 0
    assert (fleet.state("w").doubtful, fleet.trust("w")) == (0, Trust.JOINED)


def test_doubtful_claims_are_confirmed_by_events_and_by_evidence() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    fleet.apply("w", store(0, 2))
    assert fleet.state("w").doubtful == 6
    fleet.serve("w", prompt(TOKENS[:20]))
    assert fleet.state("w").doubtful == 3
    fleet.remove("w", A[7:])
    assert fleet.state("w").doubtful == 2
    fleet.wait(601.0)
    assert counts(fleet) == (5, 0, 0)


def test_a_restart_ends_the_doubt() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    fleet.apply("w", store(0, 8))
    fleet.wait(700.0)
    assert counts(fleet) == (8, 0, 0)


@pytest.mark.parametrize("how", ["replayed", "cleared"])
def test_a_repair_ends_the_finding_of_a_loss(how: str) -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.index.record_loss(rank("w"), fleet.now)
    assert "loss_unrepaired" in fleet.findings()
    if how == "replayed":
        fleet.index.forget(rank("w"), ForgetReason.REBUILT, fleet.now)
    else:
        fleet.clear("w")
    fleet.apply("w", store(0, 8))
    assert fleet.findings() == {}
    fleet.index.record_loss(rank("w"), fleet.now)
    assert "loss_unrepaired" in fleet.findings()
