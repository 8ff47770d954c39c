"""Slots and locks: who holds what, and what is given back."""

from collections.abc import Callable

import pytest

from protocol import AllBlocksCleared
from tests.worker.tree.small_core import GPU, key, make, refill, told
from worker.tree import TreeConfig, TreeCore


def test_construction_and_reset_announce_a_clear() -> None:
    core = TreeCore(TreeConfig(2, 40))
    assert core.take_events() == [AllBlocksCleared()]
    core.insert(key(1, 2))
    core.reserve(10)
    core.reset()
    assert told(core) == [("+", GPU, [1, 2]), ("clear", None, [])]
    assert core.device.free == 40
    assert core.match(key(1, 2)).tokens == 0


def test_handles_from_before_a_reset_are_void() -> None:
    core = make()
    refill(core, 1, 2)
    match = core.match(key(1, 2))
    core.reset()
    core.take_events()
    assert core.reserve_host(2)
    assert core.insert_host(match.node, key(3, 4)).is_dropped
    assert core.load_back(match) is None
    assert told(core) == []
    assert core.residency().host == core.residency().device == ()


def test_with_events_disabled_nothing_is_said() -> None:
    core = TreeCore(TreeConfig(2, 40, events_enabled=False))
    core.insert(key(1, 2))
    core.evict_device(2)
    assert core.take_events() == []


def test_owned_slots_pass_to_the_tree_and_the_rest_is_given_back() -> None:
    core = make()
    core.insert(key(1, 2, 3, 4))
    assert core.reserve(9)
    result = core.insert(key(1, 2, 3, 4, 5, 6, 7), owned_tokens=9)
    assert (result.prefix_tokens, result.device_tokens, result.released_tokens) == (4, 2, 7)
    assert core.device.held == 6
    core.check()


def test_more_slots_than_reserved_cannot_be_owned_or_released() -> None:
    core = make()
    core.reserve(2)
    with pytest.raises(ValueError, match="reserved"):
        core.insert(key(1, 2, 3, 4), owned_tokens=4)
    with pytest.raises(ValueError, match="needed"):
        core.insert(key(1, 2, 3, 4), owned_tokens=2)
    with pytest.raises(ValueError, match="reserved"):
        core.release(3)
    with pytest.raises(ValueError, match="reserved"):
        core.release_host(1)
    core.release(2)
    core.check()


def test_reserving_evicts_what_is_short_and_no_more() -> None:
    core = make(host_tokens=None)
    for first in range(0, 40, 4):
        core.insert(key(first, first + 1, first + 2, first + 3))
    core.take_events()
    assert core.reserve(6)
    assert told(core) == [("-", GPU, [4])]
    assert core.device.free == 2


def test_reserving_beyond_what_can_be_evicted_takes_nothing() -> None:
    core = make(host_tokens=None)
    node = core.insert(key(*range(20))).node
    core.lock(node)
    assert not core.reserve(21)
    assert core.device.free == 20
    assert core.match(key(*range(20))).device_tokens == 20


def test_a_key_longer_than_the_pool_is_refused_and_nothing_leaks() -> None:
    core = make()
    with pytest.raises(ValueError, match="pool"):
        core.insert(key(*range(42)))
    assert core.device.free == 40
    core.check()


def test_an_insert_that_evicts_its_own_prefix_still_caches_all() -> None:
    core = make(host_tokens=None)
    core.insert(key(*range(30)))
    core.insert(key(*range(40)))
    assert core.match(key(*range(40))).device_tokens == 40
    core.check()


def test_locks_nest_and_survive_a_split() -> None:
    core = make(host_tokens=None)
    node = core.insert(key(1, 2, 3, 4)).node
    core.lock(node)
    core.lock(node)
    core.insert(key(1, 2, 9, 9))
    core.unlock(node)
    core.evict_device(40)
    assert core.match(key(1, 2, 3, 4)).device_tokens == 4
    core.unlock(node)
    core.evict_device(40)
    assert core.device.free == 40
    with pytest.raises(ValueError, match="not locked"):
        core.unlock(node)


def test_only_what_is_on_the_device_can_be_locked() -> None:
    core = make()
    refill(core, 1, 2)
    with pytest.raises(ValueError, match="not on the device"):
        core.lock(core.match(key(1, 2)).node)


def test_a_host_lock_keeps_the_node_and_its_host_copy() -> None:
    core = make()
    refill(core, 1, 2, 3, 4)
    node = core.match(key(1, 2, 3, 4)).node
    core.lock_host(node)
    core.match(key(1, 2))
    assert core.evict_host(40) == 0
    core.unlock_host(node)
    assert core.evict_host(40) == 4
    with pytest.raises(ValueError, match="not locked"):
        core.unlock_host(node)


@pytest.mark.parametrize(
    "build",
    [
        lambda: TreeConfig(0, 40),
        lambda: TreeConfig(2, -1),
        lambda: TreeConfig(2, 40, -1),
        lambda: TreeConfig(2, 40, 40, write_through_threshold=0),
        lambda: TreeConfig(2, 40, 40, sliding_window=4),
        lambda: TreeConfig(2, 40, sliding_window=0),
    ],
)
def test_impossible_configurations_are_refused(build: Callable[[], TreeConfig]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|negative"):
        build()


def test_check_names_what_is_broken() -> None:
    core = make()
    node = core.insert(key(1, 2)).node
    core.device.give(1)
    with pytest.raises(AssertionError, match="held"):
        core.check()
    core.device.take(1)
    node.device_locks = 0
    with pytest.raises(AssertionError, match="not pinned"):
        core.check()
