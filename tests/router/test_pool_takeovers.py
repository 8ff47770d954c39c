"""A router that starts takes storage pools over from one that runs: real event sockets, dumps in process."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from indexer.pool_book import PoolState
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import (
    BlockRemoved,
    BlockStored,
    EngineKind,
    EventBatch,
    EventSource,
    PoolName,
    Rank,
    StoragePool,
    StorageUse,
    WorkerId,
    WorkerSpec,
    pool_key,
    pool_source,
)
from router.bootstrap import Bootstrap, BootstrapOutcome
from router.pool_sources import PoolSources
from router.pool_takeovers import PoolTakeovers
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.router.followers import Router, Told, heir, lines_of

NAME = PoolName("l3")
KEY = pool_source(NAME)
SPEAKS = StorageRules(speaking=frozenset({NAME}))
INFERS = StorageRules(infers=True)
UNNAMED = StoragePool(None, "mooncake", "10.0.0.9:1", "m", "tp1", "")


def user(of: StoragePool | None = None) -> WorkerSpec:
    """A worker without event sockets of its own that shares a pool."""
    use = StorageUse(of or StoragePool(NAME, "mooncake", None, "m", "tp1", ""), writes_through=True)
    return WorkerSpec(
        WorkerId("w"), "http://w", "m", EngineKind.SGLANG, "0.5.23", block_size=1, storage=use
    )


def the_pool(router: Router) -> PoolState:
    (state,) = router.index.pool_states()
    return state


def held(router: Router) -> int:
    return the_pool(router).blocks[StorageSource.POOL_EVENTS]


def inferred(router: Router) -> int:
    return the_pool(router).blocks[StorageSource.INFERRED]


@dataclass
class Heir:
    """A router that starts, with what hears and takes over pools."""

    router: Router
    bootstrap: Bootstrap
    takeovers: PoolTakeovers
    pools: PoolSources


def starting(changes: Changes, told: Told, *urls: str, source: EventSource | None = None) -> Heir:
    """It knows the worker, and nothing of the pool."""
    router = Router(changes, SPEAKS if source else INFERS)
    bootstrap = heir(router, told, *urls)
    sources = {NAME: source} if source else {}
    takeovers = PoolTakeovers(router.subscriber, bootstrap, router.index, sources.values())
    pools = PoolSources(sources, router.index, takeovers, router.intake.is_connected)
    router.index.add_worker(user(None if source else UNNAMED), time.monotonic())
    return Heir(router, bootstrap, takeovers, pools)


@asynccontextmanager
async def spoken(changes: Changes) -> AsyncIterator[tuple[LoopbackPublisher, EventSource, Router]]:
    """A pool that publishes and replays nothing, and a sibling that has heard ten blocks from the first on."""
    publisher = LoopbackPublisher(changes)
    source = publisher.source(KEY, has_replay=False)
    sibling = Router(changes, SPEAKS)
    try:
        async with sibling.running():
            sibling.index.add_worker(user(), time.monotonic())
            sibling.subscriber.subscribe(source)
            await sibling.until(lambda: publisher.num_subscribers > 0)
            for block in range(10):
                publisher.publish(block)
            await sibling.until(lambda: held(sibling) == 10)
            yield publisher, source, sibling
    finally:
        publisher.close()


@pytest.mark.parametrize("num_missed", [0, 1])
async def test_a_pools_own_events_go_on_behind_what_the_sibling_told(num_missed: int) -> None:
    """A batch that was missed in between is a loss, as for ranks without a replay."""
    changes = Changes()
    async with spoken(changes) as (publisher, source, sibling):
        told = Told(one=await lines_of(sibling, KEY))
        for block in range(num_missed):
            publisher.publish(100 + block)
        one = starting(changes, told, "one", source=source)
        async with one.router.running(one.bootstrap.run()):
            one.pools.tick(time.monotonic())
            one.takeovers.tick(time.monotonic())
            await changes.until(lambda: publisher.num_subscribers > 1)
            await changes.until(lambda: one.router.intake.is_connected(source))
            assert held(one.router) == 10
            publisher.publish(200)
            await changes.until(lambda: held(one.router) == 11)
            expected = Trust.DEGRADED if num_missed else Trust.EXACT
            await changes.until(lambda: the_pool(one.router).trust is expected)
            assert one.bootstrap.outcomes == {BootstrapOutcome.LOADED: 1}
            one.router.index.check()
            one.bootstrap.check()


async def test_without_a_sibling_that_knows_it_a_pool_is_heard_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = Changes()
    async with spoken(changes) as (publisher, source, _):
        one = starting(changes, Told(), "one", source=source)
        async with one.router.running(one.bootstrap.run()):
            one.pools.tick(time.monotonic())
            await changes.until(lambda: publisher.num_subscribers > 1)
            publisher.publish(200)
            await changes.until(lambda: held(one.router) == 1)
            assert one.bootstrap.outcomes == {BootstrapOutcome.FAILED: 1}
    assert f"sibling one cannot tell of storage {KEY}: " in caplog.text


async def test_a_pool_that_nobody_uses_any_more_is_not_taken_over() -> None:
    changes = Changes()
    async with spoken(changes) as (_, source, _sibling):
        one = starting(changes, Told(one=None), "one", source=source)
        async with one.router.running(one.bootstrap.run()):
            one.pools.tick(time.monotonic())
            one.bootstrap.check()
            one.router.index.remove_worker(WorkerId("w"))
            one.pools.tick(time.monotonic())
            one.bootstrap.check()
            assert source not in one.router.intake.sources
            one.pools.check()


async def test_inferred_copies_are_taken_over_once() -> None:
    changes = Changes()
    sibling = Router(changes, INFERS)
    sibling.index.add_worker(user(UNNAMED), time.monotonic())
    for event in (
        BlockStored([1, 2], None, [7, 8], 1, "CPU_PINNED"),
        BlockRemoved([1, 2], "CPU_PINNED"),
    ):
        batch = EventBatch(0.0, [event])
        sibling.index.apply(Rank(WorkerId("w")), batch, time.monotonic())
    one = starting(changes, Told(one=await lines_of(sibling, pool_key(UNNAMED))), "one")
    async with one.router.running(one.bootstrap.run()):
        for _ in range(3):
            one.takeovers.tick(time.monotonic())
            await changes.until(lambda: inferred(one.router) == 2)
        assert one.bootstrap.outcomes == {BootstrapOutcome.LOADED: 1}
        one.router.index.check()
