"""Storage refills: what they announce, and where they are silent."""

import pytest

from protocol import BlockStored
from tests.worker.tree.small_core import GPU, HOST, acknowledge_all, key, make, refill, told
from worker.tree import HostMode, WritePolicy


def test_a_refill_announces_its_suffix_under_the_anchor() -> None:
    core = make()
    refill(core, 1, 2)
    anchor = core.match(key(1, 2)).node
    core.take_events()
    assert core.reserve_host(4)
    result = core.insert_host(anchor, key(3, 4, 5, 6))
    assert (result.prefix_tokens, result.inserted_tokens, result.is_dropped) == (0, 4, False)
    (event,) = core.take_events()
    assert isinstance(event, BlockStored)
    assert event.parent_hash == core.page_hashes(key(1, 2))[0].event_hash
    assert core.counters.refilled == 6


def test_a_full_hit_publishes_nothing_and_gives_its_slots_back() -> None:
    core = make()
    refill(core, 1, 2, 3, 4)
    core.take_events()
    refill(core, 1, 2)
    assert told(core) == []
    assert core.host is not None
    assert core.host.held == 4


def test_an_anchor_without_a_host_copy_drops_the_refill() -> None:
    core = make(write_through_threshold=9)
    anchor = core.insert(key(1, 2)).node
    core.take_events()
    core.reserve_host(2)
    result = core.insert_host(anchor, key(3, 4))
    assert result.is_dropped
    assert told(core) == []
    assert core.host is not None
    assert core.host.free == 40
    assert core.counters.refills_dropped == 1


def test_an_anchor_that_is_gone_drops_the_refill() -> None:
    core = make()
    refill(core, 1, 2)
    anchor = core.match(key(1, 2)).node
    core.evict_host(2)
    core.reserve_host(2)
    assert core.insert_host(anchor, key(3, 4)).is_dropped
    core.check()


def test_a_refill_reaches_through_device_nodes_without_a_host_copy() -> None:
    core = make(write_through_threshold=9)
    core.insert(key(1, 2, 3, 4))
    core.take_events()
    refill(core, 1, 2, 3, 4, 5, 6)
    assert told(core) == [("+", HOST, [1, 2, 3, 4, 5, 6])]


def test_write_back_accepts_a_refill_under_a_device_only_parent() -> None:
    core = make(write_policy=WritePolicy.WRITE_BACK)
    core.insert(key(1, 2))
    core.take_events()
    refill(core, 1, 2, 3, 4)
    assert told(core) == [("+", HOST, [3, 4])]
    match = core.match(key(1, 2, 3, 4))
    assert (match.device_tokens, match.host_tokens) == (2, 2)


def test_a_muted_core_stays_silent_about_refills_and_about_nothing_else() -> None:
    core = make(announce_refills=False)
    refill(core, 1, 2)
    core.insert(key(5, 6))
    acknowledge_all(core)
    core.load_back(core.match(key(1, 2)))
    core.evict_host(40)
    assert told(core) == [("+", GPU, [5, 6]), ("+", HOST, [5, 6]), ("+", GPU, [1, 2])]
    assert len(core.residency().host) == 2


def test_digests_from_storage_are_taken_as_they_are() -> None:
    core = make()
    for salt in (None, "s"):
        pages = core.storage_pages(None, key(1, 2, 3, 4, salt=salt))
        core.reserve_host(4)
        core.insert_host(None, key(1, 2, 3, 4, salt=salt), digests=[page.digest for page in pages])
        core.check()
        anchor = core.match(key(1, 2, salt=salt)).node
        assert core.storage_pages(anchor, key(3, 4, salt=salt)) == pages[1:]
        assert core.storage_digests(anchor, key(3, 4, salt=salt)) == [pages[1].digest]


@pytest.mark.parametrize("options", [{"host_mode": HostMode.BUFFER_ONLY}, {"host_tokens": None}])
def test_without_a_host_tier_no_host_copy_ever_exists(options: dict[str, object]) -> None:
    core = make(**options)  # type: ignore[arg-type]
    node = core.insert(key(1, 2)).node
    assert core.pending_backups() == []
    assert core.back_up(node) == 0
    core.evict_device(2)
    assert core.match(key(1, 2)).tokens == 0
    with pytest.raises(ValueError, match="host slots"):
        core.insert_host(None, key(3, 4))
    core.check()
