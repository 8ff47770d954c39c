"""How much of a prefix ranks hold, tier by tier, what storage pools hold among it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from indexer.prefix_query import HeldPrefix, PrefixQuery
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import Tier
from tests.indexer.pooled_fleet import (
    HASHES,
    INFERS,
    NAME,
    PROMPT,
    SPEAKS,
    TOKENS,
    PooledFleet,
    pooled,
    user,
)
from tests.indexer.small_fleet import SIZE, prompt, rank, worker_spec


def held(fleet: PooledFleet, worker: str) -> HeldPrefix:
    """What a query says of a worker."""
    asked = prompt(PROMPT)
    query = PrefixQuery("m", None, None, lambda geometry: asked.keys(geometry[0]), SIZE)
    (found,) = [one for one in fleet.index.query(query, fleet.now) if one.rank == rank(worker)]
    return found


def announced(fleet: PooledFleet) -> None:
    fleet.store("a", HASHES, TOKENS, medium="DISK")


def told(fleet: PooledFleet) -> None:
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES), name=NAME)


def inferred(fleet: PooledFleet) -> None:
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")


@pytest.mark.parametrize(
    ("rules", "tell", "source"),
    [
        (SPEAKS, announced, StorageSource.ANNOUNCED),
        (SPEAKS, told, StorageSource.POOL_EVENTS),
        (INFERS, inferred, StorageSource.INFERRED),
    ],
)
def test_what_is_in_a_pool_counts_for_every_rank_of_it(
    rules: StorageRules, tell: Callable[[PooledFleet], None], source: StorageSource
) -> None:
    fleet = PooledFleet(user("a"), user("b"), worker_spec("alone"), rules=rules)
    tell(fleet)
    found = held(fleet, "b")
    assert found.matched_tokens == 400 == fleet.match("b", prompt(PROMPT)).matched_tokens
    assert found.on_tier == {Tier.GPU: 0, Tier.HOST: 0, Tier.STORAGE: 100}
    assert held(fleet, "a").on_tier[Tier.STORAGE] == 100
    assert {held(fleet, worker).storage_source for worker in ("a", "b")} == {source}
    assert held(fleet, "alone").matched_blocks == 0
    assert held(fleet, "alone").storage_source is None


def test_a_pool_goes_on_where_a_rank_ends() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES[:60], TOKENS[: 60 * SIZE], medium="DISK")
    fleet.store("a", HASHES[60:], TOKENS[60 * SIZE :], parent=HASHES[59])
    fleet.store("b", HASHES[:20], TOKENS[: 20 * SIZE])
    assert held(fleet, "b").on_tier == {Tier.GPU: 20, Tier.HOST: 0, Tier.STORAGE: 60}
    assert held(fleet, "b").matched_blocks == 60
    assert held(fleet, "a").on_tier == {Tier.GPU: 40, Tier.HOST: 0, Tier.STORAGE: 60}


def test_the_weakest_source_is_told_as_a_match_tells_it() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=replace(SPEAKS, infers=True))
    fleet.store("a", HASHES[:40], TOKENS[: 40 * SIZE], medium="DISK")
    assert held(fleet, "b").storage_source is fleet.source("b") is StorageSource.ANNOUNCED
    fleet.store("a", HASHES[40:70], TOKENS[40 * SIZE : 70 * SIZE], parent=HASHES[39])
    fleet.tell(pooled(HASHES[:70]), name=NAME)
    assert held(fleet, "b").storage_source is fleet.source("b") is StorageSource.POOL_EVENTS
    fleet.store("a", HASHES[70:], TOKENS[70 * SIZE :], parent=HASHES[69], medium="CPU_PINNED")
    assert held(fleet, "b").storage_source is fleet.source("b") is StorageSource.INFERRED
    assert held(fleet, "b").matched_blocks == 100


@pytest.mark.parametrize("trust", list(Trust))
def test_trust_is_that_of_the_rank(trust: Trust) -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.index.set_trust(rank("a"), trust, fleet.now)
    assert held(fleet, "a").trust is fleet.index.trust(rank("a"), fleet.now)
