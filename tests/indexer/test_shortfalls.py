"""Reports below the claims: what each kind of engine trouble makes of them, and what none of them is."""

from collections.abc import Callable

import pytest

from indexer.actions import ForgetReason
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank

CLEAR, CONTRADICT, PARITY = "clears_missing", "cached_tokens_contradict", "parity_broken"
NUM_BLOCKS = 8


def tokens_of(i: int) -> list[int]:
    """Eight blocks and a bit; prompts below 100 have nothing in common."""
    return [*blocks(1_000 * i, NUM_BLOCKS), 7]


def stores(i: int, first: int = 0, last: int = NUM_BLOCKS, medium: str = "GPU") -> BlockStored:
    hashes = names(100 * i, NUM_BLOCKS)
    parent = hashes[first - 1] if first else None
    part = tokens_of(i)[SIZE * first : SIZE * last]
    return BlockStored(hashes[first:last], parent, part, SIZE, medium)


def removes(i: int, first: int = 0, last: int = NUM_BLOCKS) -> BlockRemoved:
    return BlockRemoved(names(100 * i, NUM_BLOCKS)[first:last], "GPU")


def other_stores(i: int) -> BlockStored:
    """Blocks of no prompt that the router knows."""
    return BlockStored(names(50_000 + 100 * i, 8), None, blocks(500_000 + 100 * i, 8), SIZE, "GPU")


def ask(fleet: SmallFleet, i: int, cached: int, *events: KvEvent) -> None:
    """One request for prompt ``i``, of which the engine reuses so many blocks."""
    fleet.serve("w", prompt(tokens_of(i)), SIZE * cached, events)


def warm(trust: Trust = Trust.EXACT, limits: IndexLimits | None = None) -> SmallFleet:
    """Twenty prompts held."""
    fleet = SmallFleet("w", "v", trust=trust, limits=limits or IndexLimits())
    for i in range(20):
        fleet.apply("w", stores(i))
        fleet.apply("v", stores(i))
    return fleet


# What goes wrong


def cleared_silently(fleet: SmallFleet) -> None:
    """The cache is gone; what is asked for is computed and stored anew."""
    for i in range(3):
        ask(fleet, i, 0, stores(i))


def cleared_silently_and_heard_late(fleet: SmallFleet) -> None:
    """The stores come after the reports."""
    for i in range(3):
        ask(fleet, i, 0)
    for i in range(3):
        fleet.apply("w", stores(i))


def cleared_silently_in_a_burst(fleet: SmallFleet) -> None:
    """All are planned before the first report."""
    plans = [(i, fleet.match("w", prompt(tokens_of(i)))) for i in range(4)]
    for i, at_decision in plans:
        asked = prompt(tokens_of(i))
        fleet.index.predict(rank("w"), asked, 100.0)
        fleet.now += 0.01
        fleet.apply("w", stores(i))
        fleet.index.observe(rank("w"), asked, fleet.now)
        fleet.index.report(rank("w"), asked, 0, at_decision, 100.0, fleet.now)


def cleared_silently_and_told_nothing(fleet: SmallFleet) -> None:
    for i in range(3):
        ask(fleet, i, 0)


def one_prompt_never_reused(fleet: SmallFleet) -> None:
    """The engine does not keep what it computes, or does not count it."""
    for _ in range(3):
        ask(fleet, 0, 0)


def half_reused(fleet: SmallFleet) -> None:
    for i in range(3):
        ask(fleet, i, 3)


def nothing_counted(fleet: SmallFleet) -> None:
    """Every request reports no reuse, while other prompts are stored; nothing is stored anew."""
    for i in range(3):
        ask(fleet, i, 0, other_stores(i))


def other_tokens(fleet: SmallFleet) -> None:
    """Of prompts that the router has claims for, the engine sees others: it stores those."""
    for i in range(4):
        ask(fleet, i, 0, other_stores(i))


def other_tokens_of_unknown_prompts(fleet: SmallFleet) -> None:
    for i in range(30, 34):
        ask(fleet, i, 0, other_stores(i))
    fleet.wait(11.0)


def sparse_groups(fleet: SmallFleet) -> None:
    fleet.store("w", names(9_000, 1), [1] * SIZE, group_idx=0, spec_kind="sliding_window")
    for i in range(3):
        ask(fleet, i, 0)


# What is healthy


def reused(fleet: SmallFleet) -> None:
    for i in range(6):
        ask(fleet, i, NUM_BLOCKS)


def one_block_less(fleet: SmallFleet) -> None:
    """A draft model gives up the last hit."""
    for i in range(6):
        ask(fleet, i, NUM_BLOCKS - 1)


def evicted_before(fleet: SmallFleet) -> None:
    for i in range(6):
        fleet.apply("w", removes(i))
        ask(fleet, i, 0, stores(i))


def evicted_in_flight(fleet: SmallFleet) -> None:
    """After the decision, heard before the report."""
    for i in range(6):
        ask(fleet, i, 0, removes(i), stores(i))


def evicted_and_heard_late(fleet: SmallFleet) -> None:
    """What was evicted for a prompt, and the prompt's stores, are heard after its report."""
    for i in range(6):
        ask(fleet, i, 0)
        fleet.now += 0.1
        fleet.apply("w", removes(i), stores(i))


def leaves_evicted_and_heard_late(fleet: SmallFleet) -> None:
    for i in range(6):
        ask(fleet, i, 4)
        fleet.now += 0.1
        fleet.apply("w", removes(i, 4), stores(i, 4))


def all_heard_late_together(fleet: SmallFleet) -> None:
    for i in range(6):
        fleet.serve("w", prompt(tokens_of(i)), 0, takes_s=0.1)
    for i in range(6):
        fleet.apply("w", removes(i), stores(i))


def cleared_in_flight(fleet: SmallFleet) -> None:
    """An announced clear is no silent one, wherever it falls."""
    for i in range(6):
        ask(fleet, i, 0, AllBlocksCleared(), stores(i))


def cleared_and_heard_late(fleet: SmallFleet) -> None:
    """vLLM tells of a clear with its next step."""
    for i in range(4):
        ask(fleet, i, 0)
    fleet.apply("w", AllBlocksCleared(), *(stores(i) for i in range(4)))


def chunked_prefill(fleet: SmallFleet) -> None:
    """Long prompts are stored chunk by chunk; requests are planned in between, and see some chunks."""
    for i in range(30, 36):
        asked, planned = prompt(tokens_of(i)), []
        for first in range(0, NUM_BLOCKS, 2):
            planned.append((fleet.match("w", asked), fleet.now))
            fleet.index.predict(rank("w"), asked, fleet.now)
            fleet.now += 0.05
            fleet.apply("w", stores(i, first, first + 2))
        for cached, (at_decision, decided_at) in zip((0, 2, 4, 6), planned, strict=True):
            fleet.index.observe(rank("w"), asked, fleet.now)
            fleet.index.report(rank("w"), asked, SIZE * cached, at_decision, decided_at, fleet.now)


def computed_twice_at_once(fleet: SmallFleet) -> None:
    """Two equal prompts at the same time: both are computed, and stored twice."""
    for i in range(30, 36):
        asked = prompt(tokens_of(i))
        plans = [(fleet.match("w", asked), fleet.now) for _ in range(2)]
        for at_decision, decided_at in plans:
            fleet.now += 0.05
            fleet.apply("w", stores(i))
            fleet.index.observe(rank("w"), asked, fleet.now)
            fleet.index.report(rank("w"), asked, 0, at_decision, decided_at, fleet.now)
        ask(fleet, i, NUM_BLOCKS)


def now_and_then_less(fleet: SmallFleet) -> None:
    """One prompt in two is evicted behind our back and reused again; the others agree."""
    for i in range(0, 12, 2):
        ask(fleet, i, 0)
        ask(fleet, i + 1, NUM_BLOCKS)


def on_host_alone(fleet: SmallFleet) -> None:
    """What is claimed below GPU may well not be reused."""
    for i in range(6):
        fleet.apply("w", stores(i, medium="CPU_PINNED"), removes(i))
        ask(fleet, i, 0, stores(i))


def a_hole_on_gpu(fleet: SmallFleet) -> None:
    """GPU, host, GPU: an engine that cannot load the middle back reuses the beginning alone."""
    for i in range(6):
        fleet.apply("w", stores(i, medium="CPU"), removes(i, 2, 3))
        ask(fleet, i, 2, stores(i, 2, 3))


Scenario = Callable[[SmallFleet], None]


@pytest.mark.parametrize(
    ("scenario", "found", "num_purges"),
    [
        (cleared_silently, {CLEAR}, 1),
        (cleared_silently_and_heard_late, {CLEAR}, 1),
        (cleared_silently_in_a_burst, {CLEAR}, 1),
        (cleared_silently_and_told_nothing, {CLEAR}, 1),
        (one_prompt_never_reused, {CONTRADICT}, 1),
        (half_reused, {CONTRADICT}, 1),
        (nothing_counted, {CONTRADICT}, 1),
        (other_tokens, {CONTRADICT}, 1),
        (other_tokens_of_unknown_prompts, {PARITY}, 0),
        (sparse_groups, {CONTRADICT}, 0),
        (reused, set(), 0),
        (one_block_less, set(), 0),
        (evicted_before, set(), 0),
        (evicted_in_flight, set(), 0),
        (evicted_and_heard_late, set(), 0),
        (leaves_evicted_and_heard_late, set(), 0),
        (all_heard_late_together, set(), 0),
        (cleared_in_flight, set(), 0),
        (cleared_and_heard_late, set(), 0),
        (chunked_prefill, set(), 0),
        (computed_twice_at_once, set(), 0),
        (now_and_then_less, set(), 0),
        (on_host_alone, set(), 0),
        (a_hole_on_gpu, set(), 0),
    ],
)
def test_what_a_row_of_reports_shows(scenario: Scenario, found: set[str], num_purges: int) -> None:
    fleet = warm()
    scenario(fleet)
    fleet.wait(3.0)
    assert fleet.findings().keys() == found
    assert (fleet.state("w").purges, fleet.state("v").purges) == (num_purges, 0)


@pytest.mark.parametrize("trust", [Trust.DEGRADED, Trust.STALE, Trust.REBUILDING])
def test_claims_that_are_in_doubt_show_no_silent_clear(trust: Trust) -> None:
    fleet = warm(trust)
    if trust is Trust.DEGRADED:
        fleet.index.record_loss(rank("w"), fleet.now)
    cleared_silently(fleet)
    assert CLEAR not in fleet.findings()


def test_a_silent_clear_is_known_with_the_third_request() -> None:
    """Its claims go, its neighbour's stay; what the three requests prove is known again."""
    fleet = warm()
    for i in range(3):
        assert fleet.match("w", prompt(tokens_of(10))).gpu_blocks == NUM_BLOCKS
        ask(fleet, i, 0, stores(i))
    assert fleet.match("w", prompt(tokens_of(10))).gpu_blocks == 0
    assert fleet.match("v", prompt(tokens_of(10))).gpu_blocks == NUM_BLOCKS
    for i in range(3):
        match = fleet.match("w", prompt(tokens_of(i)))
        assert (match.gpu_blocks, match.trust) == (NUM_BLOCKS, Trust.STALE)
    (finding,) = fleet.index.findings(fleet.now)
    assert finding.ranks == (rank("w"),)
    assert {**finding.evidence, "example": ""} == {
        "num_ranks": 1,
        "silent_clears": 1,
        "requests_without_reuse": 3,
        "claimed_blocks": 3 * NUM_BLOCKS,
        "reused_blocks": 0,
        "example": "",
        "last_s": 0.0,
    }
    assert "sleep" in finding.advice
    ask(fleet, 0, NUM_BLOCKS)
    assert fleet.trust("w") is Trust.JOINED


@pytest.mark.parametrize("how", ["time", "clear", "restart", "rebuilt"])
@pytest.mark.parametrize("scenario", [cleared_silently, half_reused])
def test_how_the_finding_goes(scenario: Scenario, how: str) -> None:
    fleet = warm()
    scenario(fleet)
    fleet.wait(3.0)
    assert fleet.findings()
    match how:
        case "time":
            fleet.wait(590.0)
            assert fleet.findings()
            fleet.wait(15.0)
        case "clear":
            fleet.clear("w")
        case "restart":
            fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
        case _:
            fleet.index.forget(rank("w"), ForgetReason.REBUILT, fleet.now)
    assert fleet.findings() == {}


def test_a_report_that_agrees_begins_the_row_anew() -> None:
    fleet = warm()
    for i in (0, 1):
        ask(fleet, i, 0, stores(i))
    ask(fleet, 10, NUM_BLOCKS)
    for i in (2, 3):
        ask(fleet, i, 0, stores(i))
    assert (fleet.state("w").purges, fleet.findings()) == (0, {})
    ask(fleet, 4, 0, stores(4))
    assert fleet.state("w").purges == 1


def test_clears_are_counted() -> None:
    fleet = warm()
    for _ in range(2):
        for i in range(20):
            fleet.apply("w", stores(i))
        cleared_silently(fleet)
        ask(fleet, 0, NUM_BLOCKS)
    assert fleet.findings()[CLEAR]["silent_clears"] == 2


def test_reports_that_wait_are_bounded() -> None:
    fleet = warm(limits=IndexLimits(contradictions=1_000))
    for i in range(200):
        fleet.serve("w", prompt(tokens_of(i % 20)), 0, takes_s=0.001)
    fleet.wait(3.0)
    assert fleet.state("w").contradictions == 200
