"""Events of storage pools are heard as long as somebody uses the pool."""

import logging
from dataclasses import dataclass, field

import pytest

from protocol import EventSource, PoolName, Rank, StoragePool, pool_source
from router.pool_findings import pool_findings
from router.pool_metrics import pool_source_metrics
from router.pool_sources import PoolSources
from router.pool_views import pool_source_views

L3 = PoolName("l3")
SOURCE = EventSource(Rank(pool_source(L3)), "tcp://master:5557")


def pool(model: str) -> StoragePool:
    return StoragePool(L3, "mooncake", None, model, "tp1", "")


@dataclass
class Ears:
    """An index that knows these pools, and a subscriber that notes what it is told."""

    used: frozenset[StoragePool] = frozenset()
    heard: list[str] = field(default_factory=list)
    is_up: bool = False

    def is_connected(self, source: EventSource) -> bool:
        return self.is_up and source == SOURCE

    def pools_named(self, name: PoolName) -> frozenset[StoragePool]:
        return self.used if name == L3 else frozenset()

    def subscribe(self, source: EventSource) -> None:
        self.heard.append(f"+{source.rank.worker}")

    def unsubscribe(self, source: EventSource) -> None:
        self.heard.append(f"-{source.rank.worker}")


def told(*steps: set[str]) -> list[str]:
    ears = Ears()
    sources = PoolSources({L3: SOURCE}, ears, ears, ears.is_connected)
    for models in steps:
        ears.used = frozenset(map(pool, models))
        sources.tick(0.0)
        sources.check()
    return ears.heard


def test_nobody_uses_it() -> None:
    assert told(set(), set()) == []


def test_it_is_heard_once_while_it_is_used() -> None:
    assert told({"m"}, {"m"}, set(), {"m"}) == ["+pool/l3", "-pool/l3", "+pool/l3"]


def test_another_model_hears_it_from_the_start() -> None:
    assert told({"m"}, {"m", "n"}, {"n"}, {"n"}) == ["+pool/l3", "-pool/l3", "+pool/l3"]


def kinds(sources: PoolSources, now: float) -> list[str]:
    sources.tick(now)
    sources.check()
    return [finding.kind.value for finding in pool_findings(sources.states(), now)]


def of_logger(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_pool_that_is_used_and_not_connected_is_found_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "router.pool_sources")
    ears = Ears(frozenset({pool("m")}))
    sources = PoolSources({L3: SOURCE}, ears, ears, ears.is_connected)
    assert [kinds(sources, now) for now in (0, 29, 30, 31, 500)] == [
        [], [], *[["pool_unreachable"]] * 3
    ]  # fmt: skip
    (finding,) = pool_findings(sources.states(), 31)
    assert finding.evidence == {
        "num_pools": 1, "pool": "l3", "endpoint": "tcp://master:5557", "for_s": 31.0
    }  # fmt: skip
    assert of_logger(caplog) == [
        "events of storage pool l3 cannot be heard: no connection to tcp://master:5557 for 30 s"
    ]
    (view,) = pool_source_views(sources.states(), 31)
    assert (view.pool, view.state, view.age_s) == ("l3", "connecting", 31)
    ears.is_up = True
    assert kinds(sources, 501) == []
    assert of_logger(caplog)[1:] == ["events of storage pool l3 are heard"]


def test_one_that_flaps_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "router.pool_sources")
    ears = Ears(frozenset({pool("m")}))
    sources = PoolSources({L3: SOURCE}, ears, ears, ears.is_connected)
    for now in range(0, 2_000, 10):
        ears.is_up = not ears.is_up
        assert kinds(sources, now) == []
    assert of_logger(caplog) == []


def test_a_pool_that_nobody_uses_is_found_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ears = Ears()
    sources = PoolSources({L3: SOURCE}, ears, ears, ears.is_connected)
    assert [kinds(sources, now) for now in (0, 59, 60, 900)] == [[], [], *[["pool_unused"]] * 2]
    assert len(of_logger(caplog)) == 1
    ears.used = frozenset({pool("m")})
    assert kinds(sources, 901) == []


def test_both_are_counted_by_metrics() -> None:
    ears = Ears(frozenset({pool("m")}), is_up=True)
    sources = PoolSources({L3: SOURCE}, ears, ears, ears.is_connected)
    sources.tick(0)
    names = {
        (sample.name, sample.value)
        for metric in pool_source_metrics(sources.states())
        for sample in metric.samples
    }
    assert names == {("kvroute_pool_source_used", 1), ("kvroute_pool_source_connected", 1)}
