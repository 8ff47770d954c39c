"""Claims whose doubt is over go a bounded number at a time, and nothing else goes with them."""

from indexer.actions import ForgetReason
from protocol import BlockStored, EventBatch
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank

NUM = 20_000
TOKENS = blocks(0, NUM)


def doubted() -> SmallFleet:
    fleet = SmallFleet("w")
    fleet.store("w", names(0, NUM), TOKENS)
    fleet.store("w", names(50_000, 10), TOKENS[:40], medium="CPU")
    fleet.index.record_loss(rank("w"), fleet.now)
    return fleet


def test_many_overdue_claims_go_in_several_ticks() -> None:
    fleet = doubted()
    fleet.wait(300.0)
    assert fleet.state("w").doubtful == NUM + 10
    left = []
    for _ in range(4):
        fleet.wait(301.0)
        left.append(fleet.state("w").doubtful)
    assert left[-1] == 0
    assert all(
        before - after <= 8_192 for before, after in zip([NUM + 10, *left], left, strict=False)
    )
    assert fleet.index.stats().held == 0


def test_what_is_confirmed_or_stored_meanwhile_stays() -> None:
    fleet = doubted()
    fleet.wait(601.0)
    assert 0 < fleet.state("w").doubtful < NUM
    again = BlockStored(names(0, NUM), None, TOKENS, 4, "GPU")
    fleet.index.apply(rank("w"), EventBatch(0.0, [again]), fleet.now)
    for _ in range(4):
        fleet.wait(1.0)
    assert fleet.run("w", prompt(TOKENS)) == (NUM, 0, 0)
    assert fleet.state("w").doubtful == 0


def test_a_rank_that_is_forgotten_in_the_middle_begins_anew() -> None:
    fleet = doubted()
    fleet.wait(601.0)
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    fleet.store("w", names(0, 5), TOKENS[:20])
    for _ in range(3):
        fleet.wait(1.0)
    assert fleet.run("w", prompt(TOKENS)) == (5, 0, 0)
