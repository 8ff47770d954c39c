"""Memory follows the live blocks, not the past ones: whatever was stored and removed leaves nothing behind."""

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from indexer.limits import IndexLimits
from indexer.match import Prompt
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent, Tier
from scripts.reference.memory import tables
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank

FEW = IndexLimits(
    orphans=64,
    unresolved=64,
    observed=64,
    predicted=64,
    remembered=64,
    departures=64,
    doubled=64,
    host_copies=64,
)


def hear(fleet: SmallFleet, *events: KvEvent) -> None:
    """Without the checks, which cost far more."""
    fleet.index.apply(rank("w"), EventBatch(0.0, events), fleet.now)


def churn(fleet: SmallFleet, num_blocks: int, num_live: int, seed: int) -> None:
    """Chains that branch off one another come and go."""
    rng = random.Random(seed)
    live: list[tuple[EngineHash, int]] = []
    base = seed * 1_000_000
    for i in range(base, base + num_blocks, 4):
        parent = rng.choice(live)[0] if live and rng.random() < 0.7 else None
        hashes, medium = names(i, 4), rng.choice(["GPU", "CPU"])
        hear(fleet, BlockStored(hashes, parent, blocks(4 * i, 4), SIZE, medium))
        live.append((hashes[-1], i))
        while 4 * len(live) > num_live:
            _, gone = live.pop(rng.randrange(len(live)))
            hear(fleet, *(BlockRemoved(names(gone, 4), medium) for medium in ("GPU", "CPU")))
    fleet.index.check()


def test_the_index_counts_the_live_blocks() -> None:
    """Ancestors go before what descends from them as often as after."""
    fleet = SmallFleet("w", limits=FEW)
    for seed in range(3):
        churn(fleet, 2_000, 200, 1 + seed)
        held = fleet.index.residency(fleet.state("w").rank)
        state = fleet.state("w")
        assert sum(map(len, held.values())) == sum(state.blocks.values())
        assert state.blocks[Tier.GPU] + state.blocks[Tier.HOST] + state.unnamed >= 200
    fleet.clear("w")
    assert fleet.index.stats().blocks == 0
    assert fleet.state("w").unnamed == fleet.state("w").orphans == 0


def used_after(fleet: SmallFleet, turns: int, base: int) -> int:
    for turn in range(turns):
        churn(fleet, 2_000, 200, base + turn)
        fleet.clear("w")
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_what_came_and_went_leaves_no_memory() -> None:
    fleet = SmallFleet("w", limits=FEW)
    tracemalloc.start()
    try:
        early = used_after(fleet, 3, 0)
        late = used_after(fleet, 8, 100)
    finally:
        tracemalloc.stop()
    assert late - early < 64 * 1024


def odd_events(seed: int) -> Iterator[BlockStored | BlockRemoved]:
    """What has no place: children of nobody, stores without tokens, removals of the unknown."""
    rng = random.Random(seed)
    for i in range(0, 4_000, 4):
        match rng.randrange(4):
            case 0:
                yield BlockStored(names(i, 4), 77_000_000 + i, blocks(4 * i, 4), SIZE, "GPU")
            case 1:
                yield BlockStored(names(i, 4), None, [], 0, "CPU")
            case 2:
                yield BlockRemoved(names(50_000_000 + i, 4), "CPU")
            case _:
                yield BlockRemoved(names(i - 40, 4), rng.choice(["GPU", "CPU"]))


@pytest.mark.parametrize("trust", [Trust.EXACT, Trust.JOINED])
def test_what_has_no_place_is_bounded_and_goes(trust: Trust) -> None:
    fleet = SmallFleet("w", trust=trust, limits=FEW)
    for event in odd_events(1):
        hear(fleet, event)
    state = fleet.state("w")
    assert state.orphans <= 64
    fleet.index.check()
    fleet.clear("w")
    assert (fleet.state("w").unnamed, fleet.index.stats().blocks) == (0, 0)


def serve(fleet: SmallFleet, asked: Prompt) -> None:
    at_decision = fleet.match("w", asked)
    fleet.index.predict(rank("w"), asked, fleet.now)
    fleet.index.observe(rank("w"), asked, fleet.now)
    fleet.index.report(rank("w"), asked, 0, at_decision, fleet.now, fleet.now)


def test_evidence_of_many_prompts_is_bounded() -> None:
    fleet = SmallFleet("w", trust=Trust.NONE, limits=FEW)
    for i in range(300):
        serve(fleet, prompt(blocks(1_000 * i, 8)))
    state = fleet.state("w")
    assert (state.observed, state.predicted) == (64, 0)
    assert fleet.index.stats().blocks == 64


MEASURED = IndexLimits(observed=4_096, predicted=4_096, orphans=4_096, departures=4_096)


def fill_observed(fleet: SmallFleet) -> None:
    for i in range(0, 4_096, 32):
        fleet.index.observe(rank("w"), prompt(blocks(4 * i, 32)), fleet.now)


def fill_predicted(fleet: SmallFleet) -> None:
    for i in range(0, 4_096, 32):
        fleet.index.predict(rank("w"), prompt(blocks(4 * i, 32)), fleet.now)


def fill_orphans(fleet: SmallFleet) -> None:
    for i in range(4_096):
        orphan = BlockStored(hashes_of(i, 1), 1 << 62 | i, blocks(4 * i, 1), SIZE, "GPU")
        hear(fleet, orphan, BlockRemoved(orphan.block_hashes, "GPU"))


def fill_departures(fleet: SmallFleet) -> None:
    """And ask, which sorts them."""
    for i in range(0, 8_192, 32):
        stored = BlockStored(hashes_of(i, 32), None, blocks(4 * i, 32), SIZE, "GPU")
        hear(fleet, stored, BlockRemoved(stored.block_hashes, "GPU"))
    asked = prompt(blocks(0, 32))
    serve(fleet, asked)


def hashes_of(first: int, count: int) -> list[EngineHash]:
    """As large as hashes are."""
    return [(first + i) * 0x9E3779B97F4A7C15 % (1 << 64) for i in range(count)]


@pytest.mark.parametrize(
    ("bound", "fill", "generations"),
    [
        ("observed", fill_observed, 1),
        ("predicted", fill_predicted, 1),
        ("orphans", fill_orphans, 1),
        ("departures", fill_departures, 2),
    ],
)
def test_an_entry_takes_no_more_than_the_reference_says(
    bound: str, fill: Callable[[SmallFleet], None], generations: int
) -> None:
    said = next(one.entry_bytes for one in tables(MEASURED) if one.bound == bound)
    fleet = SmallFleet("w", trust=Trust.JOINED, limits=MEASURED)
    tracemalloc.start()
    try:
        fill(fleet)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert said / 4 < taken / (generations * 4_096) <= said
