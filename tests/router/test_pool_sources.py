"""Events of storage pools are heard as long as somebody uses the pool."""

from dataclasses import dataclass, field

from protocol import EventSource, PoolName, Rank, StoragePool, pool_source
from router.pool_sources import PoolSources

L3 = PoolName("l3")
SOURCE = EventSource(Rank(pool_source(L3)), "tcp://master:5557")


def pool(model: str) -> StoragePool:
    return StoragePool(L3, "mooncake", None, model, "tp1", "")


@dataclass
class Ears:
    """An index that knows these pools, and a subscriber that notes what it is told."""

    used: frozenset[StoragePool] = frozenset()
    heard: list[str] = field(default_factory=list)

    def pools_named(self, name: PoolName) -> frozenset[StoragePool]:
        return self.used if name == L3 else frozenset()

    def subscribe(self, source: EventSource) -> None:
        self.heard.append(f"+{source.rank.worker}")

    def unsubscribe(self, source: EventSource) -> None:
        self.heard.append(f"-{source.rank.worker}")


def told(*steps: set[str]) -> list[str]:
    ears = Ears()
    sources = PoolSources({L3: SOURCE}, ears, ears)
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
