"""Reported hits against everything that may explain them: which of them give a silent refill away."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from indexer.match import RankMatch
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank, worker_spec

HOST = "host_stores_unannounced"
A = names(0, 8)
TOKENS = blocks(0, 8)


def refill(i: int) -> tuple[list[int], list[BlockStored]]:
    """A prefix of eight blocks with the GPU store of its load-back."""
    tokens = blocks(10_000 * (i + 1), 8)
    return tokens, [BlockStored(names(100 * (i + 1), 8), None, tokens, SIZE, "GPU")]


def test_hits_that_nothing_explains() -> None:
    """Three prompts come back from host memory that nobody said was filled; load-back is no excuse."""
    fleet = SmallFleet("w")
    for i in range(3):
        assert HOST not in fleet.findings()
        tokens, load_back = refill(i)
        fleet.serve("w", prompt([*tokens, 1]), 32, load_back)
    evidence = fleet.findings()[HOST]
    assert (evidence["unexplained_hits"], evidence["unexplained_hit_blocks"]) == (3, 24)


def test_hits_say_nothing_where_host_memory_only_stages() -> None:
    """What is fetched from storage is heard of on GPU, as what is computed is."""
    fleet = SmallFleet(worker_spec("w", stages_on_host=True))
    for i in range(3):
        tokens, load_back = refill(i)
        fleet.serve("w", prompt([*tokens, 1]), 32, load_back)
    assert HOST not in fleet.findings()


def test_hits_without_any_event_are_judged_after_a_moment() -> None:
    fleet = SmallFleet("w")
    for i in range(3):
        fleet.serve("w", prompt([*refill(i)[0], 1]), 32)
    assert HOST not in fleet.findings()
    fleet.wait(2.5)
    assert HOST in fleet.findings()


def test_the_same_prefix_may_come_back_again_and_again() -> None:
    fleet = SmallFleet("w")
    tokens, load_back = refill(0)
    for _ in range(3):
        fleet.wait(30.0)
        fleet.serve("w", prompt([*tokens, 1]), 32, load_back)
        fleet.remove("w", load_back[0].block_hashes)
    assert HOST in fleet.findings()


def test_what_leaves_host_meanwhile_explains_itself_alone() -> None:
    """Refills push other blocks out, which is announced; that is no excuse for the refilled ones."""
    fleet = SmallFleet("w")
    fleet.store("w", A, TOKENS, medium="CPU_PINNED")
    fleet.wait(1.0)
    for i in range(3):
        tokens, load_back = refill(i)
        pushed_out = BlockRemoved(A[i : i + 1], "CPU_PINNED")
        fleet.serve("w", prompt([*tokens, 1]), 32, [pushed_out, *load_back])
    assert fleet.findings()[HOST].keys() == {
        "num_ranks", "unexplained_hits", "unexplained_hit_blocks", "reports_with_hits",
        "unexplained_example",
    }  # fmt: skip


def test_own_former_blocks_may_come_back_unannounced() -> None:
    """Stored, removed, and back again: that they once were on host explains nothing."""
    fleet = SmallFleet("w")
    for i in range(3):
        tokens, load_back = refill(i)
        hashes = load_back[0].block_hashes
        stores = [*load_back, BlockStored(hashes, None, tokens, SIZE, "CPU_PINNED")]
        fleet.serve("w", prompt([*tokens, 1]), 0, stores)
        fleet.apply("w", BlockRemoved(hashes, "GPU"), BlockRemoved(hashes, "CPU_PINNED"))
        fleet.wait(3.0)
    for i in range(3):
        assert HOST not in fleet.findings()
        tokens, load_back = refill(i)
        fleet.serve("w", prompt([*tokens, 1]), 32, load_back)
    assert fleet.findings()[HOST]["unexplained_hit_blocks"] == 24


def test_a_load_back_that_has_left_again_was_heard() -> None:
    """The blocks were evicted from GPU before the report could be judged."""
    fleet = SmallFleet("w")
    for i in range(3):
        tokens, load_back = refill(i)
        fleet.serve("w", prompt([*tokens, 1]), 32)
        fleet.apply("w", *load_back, BlockRemoved(load_back[0].block_hashes, "GPU"))
    fleet.findings()
    assert HOST in fleet.findings()


def test_stores_of_other_blocks_alone_say_that_keys_disagree() -> None:
    fleet = SmallFleet("w")
    for i in range(4):
        foreign = BlockStored(names(9_000 + 10 * i, 8), None, blocks(90_000 + 100 * i, 8), SIZE)
        fleet.serve("w", prompt([*refill(i)[0], 1]), 32, [foreign])
    fleet.wait(3.0)
    assert HOST not in fleet.findings()


def test_a_store_of_what_follows_the_hit_says_that_keys_agree() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A, TOKENS)
    for i in range(3):
        tokens, load_back = refill(i)
        (whole,) = load_back
        fleet.apply("w", replace(whole, block_hashes=whole.block_hashes[:1], token_ids=tokens[:4]))
        fleet.remove("w", whole.block_hashes[:1])
        fleet.wait(3.0)
        rest = replace(
            whole,
            block_hashes=whole.block_hashes[1:],
            token_ids=tokens[4:],
            parent_hash=whole.block_hashes[0],
        )
        fleet.serve("w", prompt([*tokens, 1]), 4, [rest])
        fleet.wait(3.0)
    assert fleet.findings()[HOST]["unexplained_hit_blocks"] == 3


class Two:
    """Two requests with a common prefix, both planned before either is heard of."""

    def __init__(self, fleet: SmallFleet, i: int) -> None:
        tokens, self.stores = refill(i)
        self.fleet = fleet
        self.prompts = prompt([*tokens, 1]), prompt([*tokens, 2])
        self.matches: list[RankMatch] = []
        for one in self.prompts:
            self.matches.append(fleet.match("w", one))
            fleet.index.predict(rank("w"), one, fleet.now)
            fleet.now += 0.01
        self.decided_at = fleet.now - 0.02, fleet.now - 0.01

    def begin(self, *which: int) -> None:
        for one in which:
            self.fleet.now += 0.1
            self.fleet.index.observe(rank("w"), self.prompts[one], self.fleet.now)

    def end(self, one: int, cached_tokens: int | None) -> None:
        self.fleet.now += 0.1
        self.fleet.index.report(
            rank("w"), self.prompts[one], cached_tokens, self.matches[one],
            self.decided_at[one], self.fleet.now,
        )  # fmt: skip


def test_requests_that_both_reuse_a_prefix_do_not_explain_each_other() -> None:
    fleet = SmallFleet("w")
    for i in range(3):
        assert HOST not in fleet.findings()
        two = Two(fleet, i)
        fleet.apply("w", *two.stores)
        two.begin(0, 1)
        two.end(0, 32)
        assert not fleet.index.findings(fleet.now)
        two.end(1, 32)
    assert fleet.findings()[HOST]["unexplained_hits"] == 3


@pytest.mark.parametrize("second", [0, None])
def test_a_request_that_computes_the_prefix_or_does_not_say_explains_the_other(
    second: int | None,
) -> None:
    fleet = SmallFleet("w")
    for i in range(4):
        two = Two(fleet, i)
        fleet.apply("w", *two.stores)
        two.begin(1, 0)
        two.end(0, 32)
        two.end(1, second)
    fleet.wait(70.0)
    assert HOST not in fleet.findings()


def test_a_request_that_never_reports_is_not_waited_for_longer_than_a_minute() -> None:
    fleet = SmallFleet("w")
    for i in range(4):
        two = Two(fleet, i)
        fleet.apply("w", *two.stores)
        two.begin(0)
        two.end(0, 32)
    fleet.wait(59.0)
    fleet.wait(70.0)
    assert HOST not in fleet.findings()
    assert fleet.findings() == {}


Explain = Callable[[SmallFleet, int], None]


def announced_on(medium: str) -> Explain:
    def explain(fleet: SmallFleet, i: int) -> None:
        tokens, load_back = refill(i)
        fill = BlockStored(names(100 * (i + 1), 8), None, tokens, SIZE, medium)
        fleet.serve("w", prompt([*tokens, 1]), 32, [fill, *load_back])

    return explain


def heard_late(fleet: SmallFleet, i: int) -> None:
    """The answer ends before its events are heard."""
    tokens, load_back = refill(i)
    fleet.serve("w", prompt([*tokens, 1]), 32)
    fleet.wait(1.0)
    fleet.apply(
        "w", BlockStored(names(100 * (i + 1), 8), None, tokens, SIZE, "CPU_PINNED"), *load_back
    )


def claimed_at_decision(fleet: SmallFleet, i: int) -> None:
    tokens, load_back = refill(i)
    fleet.apply("w", *load_back)
    fleet.serve("w", prompt([*tokens, 1]), 32)


def brought_by_another_request(fleet: SmallFleet, i: int) -> None:
    """Both are planned before either is heard of; the later one hits what the earlier one computed."""
    tokens, stores = refill(i)
    first, second = prompt([*tokens, 1]), prompt([*tokens, 2])
    at_decision, decided_at = fleet.match("w", second), fleet.now
    fleet.index.predict(rank("w"), second, fleet.now)
    fleet.serve("w", first, 0, stores)
    fleet.index.observe(rank("w"), second, fleet.now)
    fleet.index.report(rank("w"), second, 32, at_decision, decided_at, fleet.now)


def answer_of_the_turn_before(fleet: SmallFleet, i: int) -> None:
    """The next turn is planned before the events of the last answer are heard."""
    tokens, stores = refill(i)
    fleet.serve("w", prompt(tokens[:18]), 0)
    fleet.serve("w", prompt([*tokens, 1]), 32, stores)


def removed_meanwhile(fleet: SmallFleet, i: int) -> None:
    """Copies on host came and went since the decision."""
    tokens, load_back = refill(i)
    hashes = names(100 * (i + 1), 8)
    fill = BlockStored(hashes, None, tokens, SIZE, "CPU_PINNED")
    gone = BlockRemoved(hashes, "CPU_PINNED")
    fleet.serve("w", prompt([*tokens, 1]), 32, [fill, *load_back, gone])


def second_copy(fleet: SmallFleet, i: int) -> None:
    """vLLM removes one of two copies, and the other one serves."""
    tokens, stores = refill(i)
    fleet.apply("w", *stores, *stores, BlockRemoved(stores[0].block_hashes, "GPU"))
    fleet.serve("w", prompt([*tokens, 1]), 32)


def behind_a_hole(fleet: SmallFleet, i: int) -> None:
    """A block was claimed at decision time, though the match ended before it."""
    tokens, (stores,) = refill(i)
    hashes = stores.block_hashes
    fleet.apply("w", stores, BlockRemoved(hashes[2:3], "GPU"))
    again = replace(
        stores, block_hashes=hashes[2:3], parent_hash=hashes[1], token_ids=tokens[8:12],
        medium="CPU_PINNED",
    )  # fmt: skip
    fleet.serve("w", prompt([*tokens, 1]), 32, [again])


def chunks_without_tokens(fleet: SmallFleet, i: int) -> None:
    """vLLM names the last block of an offloaded chunk only."""
    tokens, stores = refill(i)
    hashes = stores[0].block_hashes
    chunk = BlockStored([hashes[3], hashes[7]], None, [], 0, "CPU")
    fleet.apply("w", *stores, chunk, BlockRemoved(hashes, "GPU"))
    fleet.wait(3.0)
    fleet.serve("w", prompt([*tokens, 1]), 32, stores)


def unknown_parent(fleet: SmallFleet, i: int) -> None:
    """vLLM names parents that it never reports: what is below them cannot be named."""
    tokens, (stores,) = refill(i)
    fleet.apply("w", replace(stores, parent_hash=77))
    fleet.serve("w", prompt([*tokens, 1]), 32)
    fleet.apply("w", BlockRemoved(stores.block_hashes, "GPU"))


def kept_through_a_clear(fleet: SmallFleet, i: int) -> None:
    """vLLM announces a clear of everything and keeps what it offloaded."""
    tokens, stores = refill(i)
    on_host = replace(stores[0], medium="CPU")
    fleet.apply("w", on_host, AllBlocksCleared())
    fleet.wait(3.0)
    fleet.serve("w", prompt([*tokens, 1]), 32, stores)


def cleared_meanwhile(fleet: SmallFleet, i: int) -> None:
    """The copy came after the decision, and was cleared before the report."""
    tokens, load_back = refill(i)
    fill = replace(load_back[0], medium="CPU_PINNED")
    events: list[KvEvent] = [fill, *load_back, AllBlocksCleared("CPU")]
    fleet.serve("w", prompt([*tokens, 1]), 32, events)


def second_copy_on_host(fleet: SmallFleet, i: int) -> None:
    """Two namespaces under one hash: the first removal ends the claim, the other copy serves."""
    tokens, load_back = refill(i)
    fill = replace(load_back[0], medium="CPU_PINNED")
    fleet.apply("w", fill, fill, BlockRemoved(fill.block_hashes, "CPU_PINNED"))
    fleet.wait(3.0)
    fleet.serve("w", prompt([*tokens, 1]), 32, load_back)


@pytest.mark.parametrize(
    "explain",
    [
        announced_on("CPU_PINNED"),
        announced_on("STORAGE"),
        heard_late,
        claimed_at_decision,
        brought_by_another_request,
        answer_of_the_turn_before,
        removed_meanwhile,
        second_copy,
        behind_a_hole,
        chunks_without_tokens,
        unknown_parent,
        kept_through_a_clear,
        cleared_meanwhile,
        second_copy_on_host,
    ],
)
def test_explained_hits_are_no_finding(explain: Explain) -> None:
    fleet = SmallFleet("w")
    for i in range(6):
        explain(fleet, i)
        fleet.wait(3.0)
    assert HOST not in fleet.findings()


def test_a_finding_stays_while_any_of_its_evidence_is_recent() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A, TOKENS)
    for i in range(3):
        tokens, load_back = refill(i)
        fleet.serve("w", prompt([*tokens, 1]), 32, load_back)
    assert HOST in fleet.findings()
    for _ in range(100):
        fleet.serve("w", prompt([*TOKENS, 1]), 32)
    assert fleet.findings()[HOST]["reports_with_hits"] == 103
    fleet.wait(601.0)
    assert HOST not in fleet.findings()


def test_a_few_unexplained_hits_among_very_many_are_somebody_elses() -> None:
    """Another router sends work to the same rank."""
    fleet = SmallFleet("w")
    fleet.store("w", A, TOKENS)
    for i in range(8):
        tokens, load_back = refill(i)
        fleet.serve("w", prompt([*tokens, 1]), 32, load_back)
        for _ in range(12):
            fleet.serve("w", prompt([*TOKENS, 1]), 32)
    assert fleet.findings() == {}
