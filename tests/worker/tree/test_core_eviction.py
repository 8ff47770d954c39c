"""Who goes first, and what a sliding window leaves behind."""

import pytest

from protocol import BlockRemoved
from tests.worker.tree.small_core import GPU, key, make, told
from worker.tree import CacheKey, EvictionPolicy, TreeCore


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (EvictionPolicy.LRU, [2, 3, 1]),
        (EvictionPolicy.MRU, [1, 3, 2]),
        (EvictionPolicy.FIFO, [1, 2, 3]),
        (EvictionPolicy.FILO, [3, 2, 1]),
        (EvictionPolicy.LFU, [3, 1, 2]),
        (EvictionPolicy.PRIORITY, [3, 2, 1]),
    ],
)
def test_leaves_go_in_the_order_of_the_policy(policy: EvictionPolicy, order: list[int]) -> None:
    core = make(host_tokens=None, eviction_policy=policy)
    core.insert(key(1, 1), priority=5)
    core.insert(key(2, 2), priority=4)
    core.insert(key(2, 2))
    core.insert(key(3, 3), priority=1)
    core.match(key(1, 1))
    names = {core.page_hashes(key(n, n))[0].event_hash: n for n in (1, 2, 3)}
    core.take_events()
    core.evict_device(6)
    (event,) = core.take_events()
    assert isinstance(event, BlockRemoved)
    assert [names[int(h)] for h in event.block_hashes if isinstance(h, int)] == order


def test_children_go_before_their_parents() -> None:
    core = make(host_tokens=None)
    core.insert(key(1, 2))
    core.insert(key(1, 2, 3, 4))
    hashes = [page.event_hash for page in core.page_hashes(key(1, 2, 3, 4))]
    core.take_events()
    core.evict_device(4)
    assert core.take_events() == [BlockRemoved(hashes[::-1], GPU)]


def test_namespaces_never_meet() -> None:
    core = make()
    core.insert(key(1, 2))
    assert core.match(key(1, 2, salt="s")).tokens == 0
    assert core.match(CacheKey((1, 2), extra_key="e")).tokens == 0


def window_core() -> TreeCore:
    """[1 2 3 4] above [5 6] [7 8 9 10] and [20 21], window 4."""
    core = make(host_tokens=None, sliding_window=4)
    core.insert(key(1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    core.insert(key(1, 2, 3, 4, 20, 21))
    core.take_events()
    return core


def test_an_inner_node_loses_its_window_silently_and_ends_no_match() -> None:
    core = window_core()
    freed = core.evict_window(2)
    assert (freed.device_tokens, freed.window_tokens) == (0, 2)
    assert told(core) == []
    assert core.match(key(1, 2, 3, 4, 5, 6)).tokens == 4
    assert core.match(key(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)).tokens == 10


def test_a_leaf_loses_its_pages_with_its_window() -> None:
    core = window_core()
    freed = core.evict_window(6)
    assert (freed.device_tokens, freed.window_tokens) == (4, 6)
    assert told(core) == [("-", GPU, [2])]
    assert core.match(key(1, 2, 3, 4, 5, 6)).tokens == 4


def test_computing_a_tombstone_anew_makes_it_whole() -> None:
    core = window_core()
    core.evict_window(2)
    core.insert(key(1, 2, 3, 4, 5, 6))
    assert core.match(key(1, 2, 3, 4, 5, 6)).tokens == 6
    assert told(core) == []


def test_the_last_window_of_a_new_prompt_is_kept_apart() -> None:
    core = make(host_tokens=None, sliding_window=4)
    core.insert(key(1, 2, 3, 4, 5, 6))
    core.take_events()
    freed = core.evict_window(1)
    assert (freed.device_tokens, freed.window_tokens) == (0, 2)
    assert told(core) == []
    assert core.match(key(1, 2, 3, 4, 5, 6)).tokens == 6


def test_a_match_uses_its_window_and_a_page_before() -> None:
    core = make(host_tokens=None, sliding_window=2)
    for length in (2, 4, 6):
        core.insert(key(*range(length)))
    core.insert(key(9, 9))
    core.match(key(*range(6)))
    core.take_events()
    core.evict_window(2)
    assert told(core) == []  # the first page, which is inside
    core.evict_window(2)
    assert told(core) == [("-", GPU, [1])]
    assert core.match(key(9, 9)).tokens == 0
