"""Storage pools from the configuration to the control port."""

from pathlib import Path

import pytest

from indexer.storage_rules import StorageRules
from protocol import (
    BlockStored,
    EventBatch,
    EventSource,
    PoolName,
    Rank,
    StoragePool,
    StorageUse,
    WorkerId,
    pool_source,
)
from router.config import ConfigError, RouterConfig, load_config
from router.index_metrics import index_readings
from router.pool_views import pool_views
from router.views import worker_view
from tests.router.brains import fleet

FILE = """
workers:
- {url: "http://a:1", storage_pool: l3}
- http://b:1
storage:
  infer: true
  inferred_ttl_s: 60
  max_inferred: 1000
  pools:
  - {name: l3, events: {endpoint: "tcp://master:5557", topic: kv}}
"""


def load(tmp_path: Path, text: str) -> RouterConfig:
    path = tmp_path / "kvroute.yaml"
    path.write_text(text)
    return load_config(path, {}, {})


def test_what_the_index_and_the_subscriber_are_told(tmp_path: Path) -> None:
    config = load(tmp_path, FILE)
    assert config.storage.rules() == StorageRules(
        infers=True, inferred_ttl_s=60.0, max_inferred=1_000, speaking=frozenset({PoolName("l3")})
    )
    assert config.storage.sources() == {
        PoolName("l3"): EventSource(
            Rank(pool_source(PoolName("l3"))), "tcp://master:5557", None, "kv"
        )
    }
    assert [entry.named_pool() for entry in config.workers] == ["l3", None]


def test_inference_is_off_unless_it_is_asked_for() -> None:
    assert load_config(None, {}, {}).storage.rules() == StorageRules()
    config = load_config(None, {}, {"KVROUTE_STORAGE__INFER": "true"})
    assert config.storage.rules() == StorageRules(infers=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: {inferr: true}", "storage.inferr"),
        ("storage: {inferred_ttl_s: 0}", "storage.inferred_ttl_s"),
        ("storage: {max_inferred: 0}", "storage.max_inferred"),
        ("storage: {pools: [{name: l3}]}", "storage.pools.0.events"),
        ("storage: {pools: [{name: 'a/b', events: {endpoint: 'tcp://m:1'}}]}", "storage.pools.0.name"),
        ("storage: {pools: [{name: a, events: {endpoint: 'm:1'}}]}", "storage.pools.0.events.endpoint"),
        ("storage: {pools: [{name: a, events: {endpoint: 'tcp://*:1'}}]}", "no worker"),
        (
            "storage: {pools: [{name: a, events: {endpoint: 'tcp://m:1', topic: \"a\\n\"}}]}",
            "storage.pools.0.events.topic",
        ),
        (
            "storage: {pools: [{name: a, events: &e {endpoint: 'tcp://m:1'}}, {name: a, events: *e}]}",
            "a second pool named 'a'",
        ),
        ("workers: [{url: 'http://a:1', storage_pool: 'a b'}]", "storage_pool"),
    ],
)  # fmt: skip
def test_bad_values_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_pools_are_shown_with_blocks_by_source() -> None:
    pool = StoragePool(PoolName("l3"), "mooncake", None, "m", "tp1", "")
    use = StorageUse(pool, writes_through=True)
    with fleet() as one:
        for name in ("w0", "w1"):
            one.learn(name, storage=use)
        event = BlockStored([1, 2], None, list(range(32)), 16, "STORAGE")
        index = one.brains.index
        index.apply(Rank(WorkerId("w0")), EventBatch(0.0, [event]), one.clock.now)
        (view,) = pool_views(index.pool_states())
        assert (view.name, view.backend, view.ranks) == ("l3", "mooncake", ("w0/0", "w1/0"))
        assert view.blocks == {"announced": 2, "pool_events": 0, "inferred": 0}
        assert view.trust is None
        assert worker_view(one.registry.record(WorkerId("w0"))).storage_pool == pool.label
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for reading in index_readings(index, one.clock.now)
            for metric in reading()
            for sample in metric.samples
        }
        assert samples["kvroute_pool_blocks", pool.label, "announced"] == 2
        assert samples["kvroute_pool_ranks", pool.label] == 2
        one.registry.remove(WorkerId("w0"))
        one.registry.remove(WorkerId("w1"))
        assert pool_views(index.pool_states()) == ()
