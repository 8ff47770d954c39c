"""Storage pools in the index: what attached ranks announce, and who is attached."""

from dataclasses import replace

import pytest

from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from protocol import PoolName, StoragePool
from tests.indexer.pooled_fleet import HASHES, INFERS, NAME, PROMPT, TOKENS, PooledFleet, pool, user
from tests.indexer.small_fleet import prompt, rank, worker_spec

# Announced


def test_what_one_rank_announces_every_attached_one_can_fetch() -> None:
    fleet = PooledFleet(user("a"), user("b"), worker_spec("c"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.run("c", prompt(PROMPT)) == (0, 0, 0)
    assert fleet.source("b") is StorageSource.ANNOUNCED
    assert fleet.pool().blocks[StorageSource.ANNOUNCED] == 100
    fleet.remove("a", HASHES[50:], medium="STORAGE")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 50)


def test_the_block_is_there_as_long_as_one_rank_claims_it() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    for worker in "ab":
        fleet.store(worker, HASHES, TOKENS, medium="DISK")
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    fleet.index.remove_worker(rank("b").worker)
    fleet.index.check()
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_without_a_pool_storage_is_the_ranks_own() -> None:
    fleet = PooledFleet(worker_spec("a"), worker_spec("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    assert fleet.source("a") is StorageSource.ANNOUNCED
    assert fleet.index.pool_states() == []


@pytest.mark.parametrize(
    "other",
    [
        pool("l4"),
        pool(layout="tp2"),
        pool(namespace="x"),
        pool(backend="hf3fs"),
        pool(None),
        replace(pool(None), address=None),
    ],
)
def test_other_pools_share_nothing(other: StoragePool) -> None:
    fleet = PooledFleet(user("a"), user("b", other), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_fleet_without_news_of_pools_is_looked_up_without_them() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    assert fleet.pool().ranks == (rank("a"), rank("b"))
    assert set(fleet.pool().blocks.values()) == {0}


# Membership


def test_what_is_on_its_way_to_the_gpu_is_not_counted_as_storage() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.index.predict(rank("b"), prompt(PROMPT), fleet.now)
    match = fleet.match("b", prompt(PROMPT))
    assert (match.storage_blocks, match.predicted_blocks) == (0, 100)


def test_a_worker_may_change_its_pool_and_keep_its_cache() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.add(user("b", pool("l4")))
    fleet.index.check()
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.add(user("b"))
    fleet.index.check()
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert len(fleet.index.pool_states()) == 1


def test_a_pool_goes_with_the_last_worker() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.index.remove_worker(rank("a").worker)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    fleet.index.remove_worker(rank("b").worker)
    fleet.index.check()
    assert fleet.index.pool_states() == []
    assert fleet.index.stats().blocks == 0
    fleet.add(user("a"))
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_a_late_worker_is_credited_at_once() -> None:
    fleet = PooledFleet(user("a"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    fleet.add(user("b"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.index.pools_named(NAME) == {pool()}
    assert fleet.index.pools_named(PoolName("l4")) == frozenset()
