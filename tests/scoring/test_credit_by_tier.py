"""From events to the choice of a rank, over the real index: tiers, fragments, clears, in any order of coming."""

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest

from indexer.fleet_index import FleetIndex
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    WorkerId,
    pack_tokens,
)
from scoring.brain import PlanRequest
from scoring.decision import Decision
from scoring.planner import Planner
from scoring.policies import PolicyName
from tests.scoring.fleet import rank, spec

SIZE = 256  # tokens a block: hits must outweigh what a draw between equals may do
NUM = 6
IDS = list(range(NUM * SIZE))
HASHES = list(range(100, 100 + NUM))
MEDIA: dict[str, list[str | None]] = {
    "GPU": [None, "GPU", "gpu"],
    "HOST": ["CPU", "CPU_PINNED", "cpu_pinned", "CPU_TIER1", "CPU_TIER2"],
    "STORAGE": ["DISK", "FS", "OBJ", "STORAGE", "EXTERNAL"],
}


class Fleet:
    """Workers over a real index and planner, in the order in which they are named."""

    def __init__(self, *names: str, seed: int = 1) -> None:
        self.index = FleetIndex()
        self.planner = Planner(self.index, policy=PolicyName.COST, rng=Random(seed))
        for name in names:
            worker = replace(spec(name), block_size=SIZE)
            self.index.add_worker(worker, 0.0)
            self.planner.add_worker(worker)
            self.index.set_trust(rank(name), Trust.EXACT, 0.0)

    def tell(self, name: str, *events: KvEvent) -> None:
        self.index.apply(rank(name), EventBatch(0.0, events), 0.0)

    def explain(self) -> Decision:
        request = PlanRequest("r", "chat", "m", pack_tokens([*IDS, 1]), 0.0)
        return self.planner.explain(request, 0.0)

    def run(self, name: str) -> tuple[int, int, int]:
        one = next(c for c in self.explain().candidates if c.worker == name)
        return one.gpu_blocks, one.host_pinned_blocks, one.storage_blocks

    def chosen(self) -> str | None:
        chosen = self.explain().chosen
        return None if chosen is None else chosen.worker


def stored(
    first: int, last: int, medium: str | None = "GPU", *, is_start: bool = False
) -> BlockStored:
    """Blocks of the prompt; ``is_start`` claims that a prompt starts with them."""
    parent = HASHES[first - 1] if first and not is_start else None
    offset = 1_000 if is_start and first else 0
    hashes = [h + offset for h in HASHES[first:last]]
    return BlockStored(hashes, parent, IDS[SIZE * first : SIZE * last], SIZE, medium)


def removed(first: int, last: int, medium: str | None = "GPU") -> BlockRemoved:
    return BlockRemoved(HASHES[first:last], medium)


@pytest.mark.parametrize("order", list(permutations("ABC")))
def test_the_longest_prefix_wins_in_whatever_order_workers_come(order: tuple[str, ...]) -> None:
    for seed in range(3):
        fleet = Fleet(*order, seed=seed)
        for name, count in zip("ABC", (2, 5, 5), strict=True):
            fleet.tell(name, stored(0, count))
        assert fleet.chosen() in {"B", "C"}
        assert [fleet.run(name)[0] for name in "ABC"] == [2, 5, 5]


@pytest.mark.parametrize("order", list(permutations("AB")))
def test_a_later_fragment_is_no_prefix(order: tuple[str, ...]) -> None:
    """A holds the second half, as the start of a prompt of its own; B holds one block, the first."""
    fleet = Fleet(*order)
    fleet.tell("A", stored(1, 6, is_start=True))
    fleet.tell("B", stored(0, 1))
    assert (fleet.run("A"), fleet.run("B"), fleet.chosen()) == ((0, 0, 0), (1, 0, 0), "B")


def test_a_host_copy_outlives_eviction_from_gpu_and_beats_a_cold_worker() -> None:
    fleet = Fleet("cold", "w")
    fleet.tell("w", stored(0, 4), stored(0, 4, "CPU_PINNED"))
    for event, expected in (
        (removed(2, 4), (2, 2, 0)),
        (removed(0, 4), (0, 4, 0)),
        (removed(0, 4), (0, 4, 0)),
    ):
        fleet.tell("w", event)
        assert (fleet.run("w"), fleet.chosen()) == (expected, "w")
    fleet.tell("w", removed(0, 4, "CPU_PINNED"))
    assert fleet.run("w") == (0, 0, 0)


@pytest.mark.parametrize(
    ("tier", "medium"), [(tier, medium) for tier, media in MEDIA.items() for medium in media]
)
def test_every_word_for_a_tier_is_worth_what_the_tier_is_worth(
    tier: str, medium: str | None
) -> None:
    """A faster tier is chosen before a slower one, and any before none."""
    place = list(MEDIA).index(tier)
    fleet = Fleet("w", "GPU", "HOST", "STORAGE", "cold", "odd")
    fleet.tell("w", stored(0, 6, medium))
    fleet.tell("odd", stored(0, 6, "PUNCH_CARDS"))
    for name, words in MEDIA.items():
        fleet.tell(name, stored(0, 6, words[-1]))
    costs = {c.worker: c.cost_ms or 0.0 for c in fleet.explain().candidates}
    assert costs[WorkerId("w")] == costs[WorkerId(tier)]
    ranked = [costs[WorkerId(name)] for name in ("GPU", "HOST", "STORAGE", "cold")]
    assert ranked == sorted(ranked)
    assert len(set(ranked)) == 4
    assert costs[WorkerId("odd")] == costs[WorkerId("cold")]
    assert fleet.run("w") == tuple(6 * (i == place) for i in range(3))


@pytest.mark.parametrize(
    ("medium", "left"),
    [
        (None, (0, 0, 0)),
        ("GPU", (0, 6, 0)),
        ("CPU", (6, 0, 0)),
        ("DISK", (6, 0, 0)),
        ("PUNCH_CARDS", (6, 0, 0)),
    ],
)
def test_a_clear_takes_what_it_names_of_its_own_worker(
    medium: str | None, left: tuple[int, int, int]
) -> None:
    fleet = Fleet("A", "B")
    for name in "AB":
        fleet.tell(name, *(stored(0, 6, words[0]) for words in MEDIA.values()))
    fleet.tell("A", AllBlocksCleared(medium))
    assert (fleet.run("A"), fleet.run("B")) == (left, (6, 0, 0))
    for name in "A":
        fleet.tell(name, stored(0, 6))
    assert fleet.run("A") == (6, 0, 0)
