"""Copies in a storage pool that nobody announced: what implies them, and what ends them."""

from dataclasses import replace
from typing import Any

import pytest

from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EngineKind, EventBatch, StorageUse
from tests.indexer.dumped import dump, load
from tests.indexer.pooled_fleet import (
    HASHES,
    INFERS,
    NAME,
    PROMPT,
    SPEAKS,
    TOKENS,
    PooledFleet,
    pool,
    pooled,
    user,
)
from tests.indexer.small_fleet import SIZE, blocks, names, prompt, rank


def test_a_copy_on_host_implies_one_in_the_pool() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.source("b") is StorageSource.INFERRED
    fleet.remove("a", HASHES, medium="CPU_PINNED")
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)


def test_copies_of_several_namespaces_are_implied_at_once() -> None:
    """Blocks of three key spaces in one batch, some twice."""
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    stores = [
        BlockStored(
            list(names(1_000 * n, 100)), None, list(TOKENS), SIZE, "CPU_PINNED", lora_name=name
        )
        for n, name in enumerate([None, "x", "y", "x"])
    ]
    fleet.index.apply(rank("a"), EventBatch(0.0, stores), fleet.now)
    fleet.index.check()
    for adapter in (None, "x", "y"):
        assert fleet.run("b", prompt(PROMPT, adapter=adapter)) == (0, 0, 100), adapter
    fleet.wait(120.0)
    for adapter in (None, "x", "y"):
        assert fleet.run("b", prompt(PROMPT, adapter=adapter)) == (0, 0, 0), adapter
    fleet.index.check()


def test_inference_is_off_by_default() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_only_engines_that_write_through_imply_copies() -> None:
    back = StorageUse(pool(), writes_through=False)
    fleet = PooledFleet(user("a", storage=back), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.store("b", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)


def test_inferred_copies_age() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.wait(40.0)
    fleet.store("b", HASHES[:30], TOKENS[:120], medium="CPU_PINNED")  # as after a fetch
    fleet.wait(40.0)
    fleet.clear("b")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 30)
    fleet.wait(40.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_inferred_copies_are_bounded_and_the_oldest_go() -> None:
    rules = replace(INFERS, max_inferred=40)
    fleet = PooledFleet(user("a"), user("b"), rules=rules)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 40)
    assert fleet.pool().blocks[StorageSource.INFERRED] == 40


def test_a_store_that_is_gone_within_its_batch_implies_a_copy_all_the_same() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    event = BlockStored(HASHES, None, TOKENS, SIZE, "CPU_PINNED")
    fleet.apply("a", event, BlockRemoved(HASHES, "CPU_PINNED"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)  # its key space went with it
    fleet.store("a", [99], [1, 1, 1, 1])
    fleet.apply("a", event, BlockRemoved(HASHES, "CPU_PINNED"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)


def test_what_a_served_prompt_names_implies_copies_at_once() -> None:
    fleet = PooledFleet(rules=INFERS)
    fleet.add(user("a"), trust=Trust.JOINED)
    fleet.store("a", HASHES[1:], TOKENS[SIZE:], parent=HASHES[0], medium="CPU_PINNED")
    assert fleet.pool().blocks[StorageSource.INFERRED] == 0  # nobody knows what comes before
    fleet.index.observe(rank("a"), prompt(TOKENS[: 2 * SIZE]), fleet.now)
    fleet.index.check()
    assert fleet.pool().blocks[StorageSource.INFERRED] == 99


def test_what_is_loaded_on_host_implies_copies_at_once() -> None:
    before, after = (PooledFleet(user("a"), rules=INFERS) for _ in range(2))
    before.index.apply(rank("a"), EventBatch(0.0, []), before.now, 9)
    before.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    loading = load(after, dump(before, rank("a")))
    assert not loading.skipped
    assert after.pool().blocks[StorageSource.INFERRED] == 100


@pytest.mark.parametrize(
    ("cached", "left"),
    [
        (400, 100),  # all of it
        (396, 100),  # but for one block, as with a draft model
        (200, 50),
        (0, 0),
    ],
)
def test_a_report_ends_what_it_contradicts(cached: int, left: int) -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.serve("b", prompt(PROMPT), cached)
    fleet.clear("b")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, left)
    assert fleet.pool().contradicted == 100 - left


@pytest.mark.parametrize(("cached", "contradicted"), [(40, 0), (80, 80)])
def test_a_report_below_what_the_rank_holds_itself_says_nothing_of_the_pool(
    cached: int, contradicted: int
) -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.store("b", HASHES[:20], TOKENS[:80])
    fleet.serve("b", prompt(PROMPT), cached)
    assert fleet.pool().contradicted == contradicted


def test_what_is_too_short_to_be_fetched_is_not_contradicted() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    short = blocks(1, 40)
    fleet.store("a", HASHES[:40], short, medium="CPU_PINNED")
    fleet.serve("b", prompt([*short, 7]), 0)
    assert fleet.pool().contradicted == 0
    fleet.add(user("c", prefetch_threshold=64))
    fleet.serve("c", prompt([*short, 7]), 0)
    assert fleet.pool().contradicted == 40


def test_announced_copies_are_not_what_inference_drops() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=replace(INFERS, speaking=frozenset({NAME})))
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.tell(pooled(HASHES[:50]))
    assert fleet.source("b") is StorageSource.INFERRED
    fleet.serve("b", prompt(PROMPT), 0)
    fleet.clear("b")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 50)
    assert fleet.source("b") is StorageSource.POOL_EVENTS


@pytest.mark.parametrize("is_pooled", [True, False])
def test_what_is_fetched_from_a_pool_is_explained_by_it(is_pooled: bool) -> None:
    """Engines whose connectors load storage straight to GPU announce no host copy."""
    vllm: dict[str, Any] = {"engine": EngineKind.VLLM, "version": "0.32.0"}
    fleet = PooledFleet(user("a", **vllm), user("b", **vllm), rules=SPEAKS)
    for number in range(3):
        tokens, hashes = blocks(1_000 * number + 1, 20), names(100 * number, 20)
        load = BlockStored(hashes, None, tokens, SIZE, "GPU")
        fleet.apply("a", load)
        if is_pooled:
            fleet.tell(pooled(hashes))
        fleet.serve("b", prompt([*tokens, 7]), 80, [load])
        fleet.wait(3.0)
    assert ("host_stores_unannounced" in fleet.findings()) is not is_pooled
