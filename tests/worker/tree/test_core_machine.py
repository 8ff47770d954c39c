"""Random lives of a tree core: what it announces is what is readable, after every step."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.worker.tree.announced import pages
from tests.worker.tree.life import ADAPTERS, Life
from worker.tree import EvictionPolicy, HashFormat, HostMode, TreeConfig, WritePolicy

tiered = st.builds(
    TreeConfig,
    page_size=st.sampled_from([1, 2, 4, 64, 512]),
    device_tokens=st.integers(2, 16),  # pages, until the size of a page is known
    host_tokens=st.one_of(st.integers(1, 16), st.integers(4, 16), st.none()),
    write_policy=st.sampled_from(WritePolicy),
    write_through_threshold=st.one_of(st.none(), st.integers(1, 3)),
    load_back_threshold=st.sampled_from([0, 10]),
    eviction_policy=st.sampled_from(EvictionPolicy),
    host_mode=st.sampled_from([HostMode.CACHE] * 3 + [HostMode.BUFFER_ONLY]),
    hash_format=st.sampled_from(HashFormat),
    is_eagle=st.booleans(),
    adapters=st.just(ADAPTERS),
)
windowed = st.builds(
    lambda config, window: replace(config, host_tokens=None, sliding_window=window),
    tiered,
    st.integers(1, 20),
)
configs = st.one_of(tiered, tiered, windowed)
namespaces = st.integers(0, 3)
runs = st.lists(st.integers(0, 1), min_size=1, max_size=6)
lengths = st.integers(0, 40)


def sized(config: TreeConfig) -> TreeConfig:
    """Pool sizes in tokens."""
    host = config.host_tokens
    return replace(
        config,
        device_tokens=config.device_tokens * config.page_size,
        host_tokens=None if host is None else host * config.page_size,
    )


class CoreMachine(RuleBasedStateMachine):
    """Any policy, page size, pool size, namespace and component, with copies that stay in flight for a while."""

    @initialize(config=configs)
    def build(self, config: TreeConfig) -> None:
        self.lives = self.make(sized(config))
        self.refilling = False

    def make(self, config: TreeConfig) -> list[Life]:
        return [Life(config)]

    @rule(run=runs, namespace=namespaces, extra=st.integers(0, 3), priority=st.integers(0, 2))
    def insert(self, run: list[int], namespace: int, extra: int, priority: int) -> None:
        for life in self.lives:
            life.insert(life.key(run, namespace, extra), priority)

    @rule(run=runs, namespace=namespaces, extra=st.integers(0, 3), more=st.integers(0, 8))
    def insert_owned(self, run: list[int], namespace: int, extra: int, more: int) -> None:
        for life in self.lives:
            life.insert_owned(life.key(run, namespace, extra), more)

    @rule(run=runs, namespace=namespaces)
    def load_back(self, run: list[int], namespace: int) -> None:
        for life in self.lives:
            life.load_back(life.key(run, namespace))

    @rule(run=runs, namespace=namespaces)
    def cycle(self, run: list[int], namespace: int) -> None:
        for life in self.lives:
            life.cycle(life.key(run, namespace))

    @precondition(lambda self: any(life.loading for life in self.lives))
    @rule(index=st.integers(0, 9))
    def finish_load_back(self, index: int) -> None:
        for life in self.lives:
            life.finish_load_back(index)

    @precondition(lambda self: any(life.core.pending_backups() for life in self.lives))
    @rule()
    def acknowledge(self) -> None:
        for life in self.lives:
            life.acknowledge()

    @rule(run=runs, namespace=namespaces, cut=st.integers(0, 8))
    def anchor(self, run: list[int], namespace: int, cut: int) -> None:
        for life in self.lives:
            life.anchor(run, namespace, cut)

    @precondition(lambda self: any(life.anchored for life in self.lives))
    @rule(index=st.integers(0, 9))
    def refill(self, index: int) -> None:
        self.refilling = True
        for life in self.lives:
            life.refill(index)

    @rule(num_pages=st.integers(1, 6))
    def evict_device(self, num_pages: int) -> None:
        for life in self.lives:
            life.core.evict_device(num_pages * life.core.config.page_size)

    @rule(num_tokens=lengths)
    def evict_host(self, num_tokens: int) -> None:
        for life in self.lives:
            life.core.evict_host(num_tokens)

    @precondition(lambda self: any(life.core.config.sliding_window for life in self.lives))
    @rule(num_tokens=lengths)
    def evict_window(self, num_tokens: int) -> None:
        for life in self.lives:
            life.core.evict_window(num_tokens)

    @rule(run=runs, namespace=namespaces)
    def lock(self, run: list[int], namespace: int) -> None:
        for life in self.lives:
            life.lock(life.key(run, namespace))

    @precondition(lambda self: any(life.locked for life in self.lives))
    @rule(index=st.integers(0, 9))
    def unlock(self, index: int) -> None:
        for life in self.lives:
            life.unlock(index)

    @rule(run=runs, namespace=namespaces)
    def back_up(self, run: list[int], namespace: int) -> None:
        for life in self.lives:
            life.back_up(life.key(run, namespace))

    @rule(is_due=st.integers(0, 9))
    def reset(self, is_due: int) -> None:
        if not is_due:
            for life in self.lives:
                life.reset()

    @invariant()
    def announced_is_readable(self) -> None:
        for life in getattr(self, "lives", []):
            life.check()

    def teardown(self) -> None:
        for life in getattr(self, "lives", []):
            life.end()


class MutedMachine(CoreMachine):
    """Beside the core, one that mutes its refills: it lives the same life, and only refills are
    missing from what it says."""

    def make(self, config: TreeConfig) -> list[Life]:
        return [Life(config), Life(replace(config, announce_refills=False))]

    @invariant()
    def announced_is_readable(self) -> None:
        lives = getattr(self, "lives", [])
        if not lives:
            return
        honest, muted = lives
        told, hushed = pages(honest.hear()), pages(muted.hear())
        assert hushed == ([] if self.refilling else told)
        self.refilling = False
        assert honest.core.residency() == muted.core.residency()


TestCore = CoreMachine.TestCase
TestCore.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMuted = MutedMachine.TestCase
TestMuted.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
