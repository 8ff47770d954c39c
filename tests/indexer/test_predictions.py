"""What stays predicted when a request comes to nothing."""

import pytest

from indexer.match import Prompt
from tests.indexer.small_fleet import SmallFleet, blocks, prompt, rank

BEGINNING, LATER = blocks(0, 5), blocks(1_000, 3)
REQUEST = prompt([*BEGINNING, *LATER, 1])


def predicted(fleet: SmallFleet, asked: Prompt = REQUEST) -> int:
    (match,) = fleet.index.match(asked, [rank("w")], fleet.now)
    return match.predicted_blocks


@pytest.mark.parametrize(
    ("under_way", "kept"),
    [
        ([], 0),
        ([prompt(blocks(500, 9))], 0),
        ([prompt([*BEGINNING, *blocks(2_000, 3)])], 5),
        ([prompt(BEGINNING[:8]), prompt(BEGINNING[:12])], 3),
        ([prompt(BEGINNING, adapter="lora")], 0),
        ([prompt(BEGINNING, salt="s")], 0),
        ([prompt([*BEGINNING, *LATER, *blocks(3_000, 2)])], 8),
        ([REQUEST], 8),
        ([prompt([1])], 0),
    ],
)
def test_blocks_of_requests_under_way_stay_predicted(under_way: list[Prompt], kept: int) -> None:
    fleet = SmallFleet("w")
    for one in (REQUEST, *under_way):
        fleet.index.predict(rank("w"), one, fleet.now)
    fleet.index.withdraw(rank("w"), REQUEST, under_way)
    fleet.index.check()
    assert predicted(fleet) == kept
    for one in under_way:
        assert predicted(fleet, one) == len(one.keys(4))


def test_what_is_known_otherwise_stays() -> None:
    fleet = SmallFleet("w")
    fleet.index.predict(rank("w"), REQUEST, fleet.now)
    fleet.index.observe(rank("w"), prompt(BEGINNING), fleet.now)
    fleet.index.withdraw(rank("w"), REQUEST, [])
    (match,) = fleet.index.match(REQUEST, [rank("w")], fleet.now)
    assert (match.observed_blocks, match.predicted_blocks) == (5, 0)


def test_nothing_to_withdraw_is_no_fault() -> None:
    fleet = SmallFleet("w")
    fleet.index.withdraw(rank("w"), REQUEST, [])
    fleet.index.withdraw(rank("unknown"), REQUEST, [])
    assert fleet.index.stats().blocks == 0
    fleet.index.check()
