"""What both parts of a split keep: whatever decides when they go, and who may go at all."""

import pytest

from protocol import BlockRemoved, KvEvent
from tests.worker.tree.small_core import GPU, HOST, acknowledge_all, key, make, refill, told
from worker.tree import CacheKey, EvictionPolicy, TreeCore, WritePolicy


def goes(core: TreeCore, pages: dict[str, CacheKey], num_pages: int) -> list[str]:
    """Names of the last pages of keys, in the order in which the device gives pages up."""
    names = {core.page_hashes(one)[-1].event_hash: name for name, one in pages.items()}
    core.take_events()
    events: list[KvEvent] = []
    for _ in range(num_pages):
        core.evict_device(2)
        events += core.take_events()
    removed = [h for e in events if isinstance(e, BlockRemoved) for h in e.block_hashes]
    core.check()
    return [names[h] for h in removed if isinstance(h, int)]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (EvictionPolicy.PRIORITY, ["other", "lower", "upper"]),
        (EvictionPolicy.LFU, ["other", "lower", "upper"]),
        (EvictionPolicy.FIFO, ["lower", "upper", "other"]),
        (EvictionPolicy.FILO, ["other", "lower", "upper"]),
        (EvictionPolicy.LRU, ["other", "lower", "upper"]),
        (EvictionPolicy.MRU, ["lower", "upper", "other"]),
    ],
)
def test_parts_go_by_the_age_hits_and_priority_of_the_whole(
    policy: EvictionPolicy, order: list[str]
) -> None:
    core = make(host_tokens=None, eviction_policy=policy)
    for _ in range(2):
        core.insert(key(1, 2, 3, 4), priority=5)
    core.insert(key(9, 9), priority=3)
    assert core.match(key(1, 2)).tokens == 2
    pages = {"upper": key(1, 2), "lower": key(1, 2, 3, 4), "other": key(9, 9)}
    assert goes(core, pages, 3) == order


def test_the_upper_part_has_the_priority_of_the_whole_when_the_lower_is_gone() -> None:
    core = make(host_tokens=None, eviction_policy=EvictionPolicy.PRIORITY)
    core.insert(key(1, 2, 3, 4), priority=5)
    core.match(key(1, 2))
    core.evict_device(2)
    core.insert(key(9, 9), priority=3)
    assert goes(core, {"upper": key(1, 2), "other": key(9, 9)}, 2) == ["other", "upper"]


def test_a_copy_in_flight_covers_both_parts_and_pins_them() -> None:
    core = make()
    core.insert(key(1, 2, 3, 4))
    core.match(key(1, 2))
    core.take_events()
    assert core.evict_device(40) == 0
    acknowledge_all(core)
    assert told(core) == [("+", HOST, [1, 2, 3, 4])]
    assert core.evict_device(40) == 4


def test_a_load_back_in_flight_pins_both_parts() -> None:
    core = make()
    refill(core, 1, 2, 3, 4)
    load_back = core.load_back(core.match(key(1, 2, 3, 4)))
    assert load_back is not None
    core.match(key(1, 2))
    assert core.evict_device(40) == 0
    core.finish_load_back(load_back)
    assert core.evict_device(40) == 4


def test_hits_of_the_whole_count_towards_the_copies_of_its_parts() -> None:
    core = make(write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    core.insert(key(1, 2, 3, 4))
    core.match(key(1, 2))
    core.insert(key(1, 2))
    assert [backup.num_tokens for backup in core.pending_backups()] == [2]
    core.insert(key(1, 2, 3, 4))
    assert [backup.num_tokens for backup in core.pending_backups()] == [2, 2]


def test_under_write_back_hits_are_not_counted() -> None:
    core = make(write_policy=WritePolicy.WRITE_BACK, eviction_policy=EvictionPolicy.LFU)
    for _ in range(3):
        core.insert(key(1, 2))
    core.insert(key(9, 9))
    assert goes(core, {"often": key(1, 2), "late": key(9, 9)}, 2) == ["often", "late"]


def test_a_refilled_page_has_the_priority_of_the_page_before() -> None:
    core = make(eviction_policy=EvictionPolicy.PRIORITY)
    core.insert(key(1, 2), priority=5)
    core.insert(key(8, 8), priority=3)
    acknowledge_all(core)
    refill(core, 1, 2, 3, 4)
    core.evict_device(40)
    core.take_events()
    core.evict_host(2)
    assert told(core) == [("-", HOST, [1])]
    assert core.match(key(8, 8)).tokens == 0
    assert core.match(key(1, 2, 3, 4)).tokens == 4


def test_parts_keep_their_windows() -> None:
    core = make(host_tokens=None, sliding_window=4)
    core.insert(key(1, 2, 3, 4))
    assert core.match(key(1, 2)).tokens == 2
    assert core.match(key(1, 2, 3, 4)).tokens == 4


def test_parts_keep_the_age_of_their_windows() -> None:
    """The split is too far before the end of the new prompt to be used by it."""
    core = make(host_tokens=None, sliding_window=2)
    core.insert(key(9, 9))
    core.insert(key(*range(20, 30)))
    core.insert(key(20, 21, *range(40, 50)))
    core.take_events()
    core.evict_window(2)
    assert told(core) == [("-", GPU, [1])]
    assert core.match(key(9, 9)).tokens == 0
