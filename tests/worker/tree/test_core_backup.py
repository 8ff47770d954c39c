"""Copies to host and back: when they start, when they are announced, what they pin."""

import pytest

from protocol import BlockStored
from tests.worker.tree.small_core import GPU, HOST, acknowledge_all, key, make, refill, told
from worker.tree import TreeConfig, TreeCore, WritePolicy


@pytest.mark.parametrize(
    ("policy", "threshold", "hits"),
    [
        (WritePolicy.WRITE_THROUGH, None, 1),
        (WritePolicy.WRITE_THROUGH, 3, 3),
        (WritePolicy.WRITE_THROUGH_SELECTIVE, None, 2),
    ],
)
def test_a_backup_is_issued_at_the_threshold_and_announced_when_acknowledged(
    policy: WritePolicy, threshold: int | None, hits: int
) -> None:
    core = make(write_policy=policy, write_through_threshold=threshold)
    for hit in range(1, hits + 1):
        core.insert(key(1, 2))
        assert len(core.pending_backups()) == (hit == hits)
    core.take_events()
    assert core.residency().host == ()
    acked = core.acknowledge(core.pending_backups()[0])
    assert [page.tokens for page in acked.pages] == [(1, 2)]
    assert acked.pages[0].digest == core.page_hashes(key(1, 2))[0].digest
    assert told(core) == [("+", HOST, [1, 2])]


def test_a_prefill_in_chunks_counts_each_node_once() -> None:
    core = make(write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    core.insert(key(1, 2))
    core.insert(key(1, 2, 3, 4), counted_tokens=2)
    assert core.pending_backups() == []
    core.insert(key(1, 2, 3, 4))
    assert sum(backup.num_tokens for backup in core.pending_backups()) == 4


def test_backups_are_acknowledged_oldest_first() -> None:
    core = make()
    core.insert(key(1, 2))
    core.insert(key(3, 4))
    first, second = core.pending_backups()
    with pytest.raises(ValueError, match="oldest"):
        core.acknowledge(second)
    core.acknowledge(first)
    core.acknowledge(second)
    with pytest.raises(ValueError, match="oldest"):
        core.acknowledge(second)


def test_a_copy_in_flight_pins_its_node() -> None:
    core = make()
    core.insert(key(1, 2))
    assert core.evict_device(2) == 0
    acknowledge_all(core)
    assert core.evict_device(2) == 2
    assert core.match(key(1, 2)).host_tokens == 2


def test_a_backup_that_finds_no_room_is_counted_and_the_node_goes_silently() -> None:
    core = make(host_tokens=2)
    core.insert(key(1, 2))
    core.insert(key(3, 4))
    assert core.counters.backups_refused == 2
    core.take_events()
    assert core.evict_device(2) == 2
    assert told(core) == [("-", GPU, [1])]
    assert core.match(key(3, 4)).tokens == 0


def test_a_forced_backup_takes_the_ancestors_along() -> None:
    core = make(write_through_threshold=9)
    core.insert(key(1, 2))
    node = core.insert(key(1, 2, 3, 4)).node
    core.take_events()
    assert core.back_up(node) == 2
    assert core.back_up(node) == 0
    acknowledge_all(core)
    assert told(core) == [("+", HOST, [1, 2, 3, 4])]


def test_write_back_announces_the_host_copy_before_the_device_copy_goes() -> None:
    core = make(write_policy=WritePolicy.WRITE_BACK)
    core.insert(key(1, 2))
    core.take_events()
    core.evict_device(2)
    assert told(core) == [("+", HOST, [1, 2]), ("-", GPU, [1])]


def test_write_back_drops_a_leaf_where_host_cannot_make_room() -> None:
    core = make(host_tokens=2, write_policy=WritePolicy.WRITE_BACK)
    core.insert(key(1, 2, 3, 4, 5, 6))
    core.match(key(1, 2, 3, 4))
    core.evict_device(2)
    core.take_events()
    core.evict_device(4)
    assert told(core) == [("-", HOST, [1]), ("-", GPU, [2])]
    assert core.match(key(1, 2)).tokens == 0


def test_write_back_keeps_a_leaf_whose_host_part_below_is_pinned() -> None:
    core = make(host_tokens=2, write_policy=WritePolicy.WRITE_BACK)
    core.insert(key(1, 2, 3, 4, 5, 6))
    core.match(key(1, 2, 3, 4))
    core.evict_device(2)
    core.lock_host(core.match(key(1, 2, 3, 4, 5, 6)).node)
    assert core.evict_device(4) == 0
    assert core.match(key(1, 2, 3, 4, 5, 6)).tokens == 6
    core.check()


def test_a_load_back_is_readable_at_once_and_pinned_until_finished() -> None:
    core = make()
    refill(core, 1, 2, 3, 4)
    core.take_events()
    load_back = core.load_back(core.match(key(1, 2, 3, 4)))
    assert load_back is not None
    assert load_back.num_tokens == 4
    assert told(core) == [("+", GPU, [1, 2, 3, 4])]
    assert core.evict_device(4) == 0
    core.finish_load_back(load_back)
    assert core.evict_device(4) == 4
    with pytest.raises(ValueError, match="no such copy"):
        core.finish_load_back(load_back)


def test_pages_on_host_alone_are_announced_when_they_are_computed_again() -> None:
    core = make()
    refill(core, 1, 2)
    core.take_events()
    core.insert(key(1, 2, 3, 4), session_id="s")
    (event,) = core.take_events()
    assert isinstance(event, BlockStored)
    assert (event.medium, event.token_ids, event.session_id) == (GPU, [1, 2, 3, 4], "s")


def test_a_load_back_below_the_threshold_or_without_room_is_declined() -> None:
    small = TreeCore(TreeConfig(2, 40, 40))
    refill(small, *range(10))
    assert small.load_back(small.match(key(*range(8)))) is None
    assert small.load_back(small.match(key(*range(10)))) is not None
    core = make()
    refill(core, 1, 2, 3, 4)
    core.reserve(38)
    assert core.load_back(core.match(key(1, 2, 3, 4))) is None
    core.check()


def test_nothing_is_loaded_for_a_match_that_is_on_the_device_or_gone() -> None:
    core = make()
    core.insert(key(1, 2))
    assert core.load_back(core.match(key(1, 2))) is None
    refill(core, 5, 6)
    match = core.match(key(5, 6))
    core.evict_host(40)
    assert core.load_back(match) is None
