"""The queue of writes by way of host: in order, bounded, and without holes in storage."""

from tests.worker.virtual_time import MODEL, prompt_of
from worker.staged_writes import StagedWrites, WriteDrop
from worker.storage import MemoryStorage
from worker.storage_belief import StorageBelief
from worker.tree import CacheKey, HostMode, TreeConfig, TreeCore


class World:
    """A tree of single pages of four tokens, and the writes of it."""

    def __init__(self, *, device_tokens: int = 64, host_tokens: int = 8) -> None:
        config = TreeConfig(4, device_tokens, host_tokens, host_mode=HostMode.BUFFER_ONLY)
        self.tree = TreeCore(config)
        self.storage = MemoryStorage()
        self.belief = StorageBelief()
        self.writes = StagedWrites(self.tree, self.storage, MODEL, self.belief)

    def insert(self, *prompts: list[int]) -> None:
        """Insert prompts; what is due is queued."""
        for prompt in prompts:
            self.writes.want(self.tree.insert(CacheKey(tuple(prompt))).to_write)

    def run(self) -> list[float]:
        """Complete everything; the times at which something happened."""
        times = []
        self.writes.launch(0.0)
        while (due := self.writes.next_due()) is not None:
            times.append(round(due * 1e3, 6))
            self.writes.settle(due)
            self.check()
        assert not self.writes
        return times

    def check(self) -> None:
        """Verify tree, writes, and that host holds what is staged and nothing else."""
        self.tree.check()
        self.writes.check()
        assert self.tree.host is not None
        assert self.tree.host.held == self.writes.staged_tokens


def test_two_links_work_side_by_side() -> None:
    world = World(host_tokens=64)
    world.insert(*(prompt_of(number, 4) for number in (0, 1)))
    assert world.run() == [1, 2, 3, 5]  # copied at 1 and 2, stored at 3 and 5
    assert len(world.storage) == 2


def test_what_has_no_room_waits_in_order() -> None:
    world = World(host_tokens=4)
    world.insert(*(prompt_of(number, 4) for number in (0, 1)))
    assert world.run() == [1, 3, 4, 6]
    assert world.writes.stored_tokens == 8


def test_reads_leave_writes_a_fifth() -> None:
    world = World(host_tokens=40)
    assert world.tree.reserve_host(24)
    world.insert(*(prompt_of(number, 4) for number in range(6)))
    world.writes.launch(0.0)
    assert world.writes.staged_tokens == 12  # 40, less what reads hold, less a tenth
    assert world.tree.reserve_host(4)
    world.writes.settle(1e-3)
    assert world.writes.staged_tokens == 12
    world.tree.release_host(28)
    world.run()
    assert len(world.storage) == 6


def test_split_while_it_waits_is_queued_anew_when_it_is_hit() -> None:
    world = World()
    world.insert(prompt_of(0, 8))
    world.tree.match(CacheKey(tuple(prompt_of(0, 4))))  # cuts the node
    assert world.run() == []
    assert world.writes.dropped == {WriteDrop.STALE: 1}
    world.insert(prompt_of(0, 8))
    world.run()
    assert len(world.storage) == 2


def test_evicted_while_it_waits_and_what_follows_it() -> None:
    world = World()
    world.insert(prompt_of(0, 4), prompt_of(0, 8))
    world.tree.evict_device(8)
    assert world.run() == []
    assert world.writes.dropped == {WriteDrop.STALE: 2}


def test_split_and_evicted_while_it_is_copied_is_written_whole() -> None:
    world = World()
    world.insert(prompt_of(0, 8))
    world.writes.launch(0.0)
    world.tree.match(CacheKey(tuple(prompt_of(0, 4))))
    assert world.tree.evict_device(8) == 0  # locked
    world.writes.settle(2e-3)
    assert world.tree.evict_device(8) == 8
    world.run()
    assert len(world.storage) == 2
    assert len(world.belief) == 2


def test_same_content_is_not_written_twice_at_once() -> None:
    world = World(host_tokens=64)
    world.insert(prompt_of(0, 4))
    world.writes.launch(0.0)
    world.writes.settle(1e-3)
    world.tree.evict_device(4)
    world.insert(prompt_of(0, 4))
    world.run()
    assert (world.storage.counters.put, world.storage.counters.put_known) == (1, 0)


def test_backlog_is_bounded_by_two_device_pools() -> None:
    world = World(device_tokens=8, host_tokens=8)
    for number in range(5):
        world.tree.evict_device(8)
        world.insert(prompt_of(number, 8))
    assert world.writes.dropped == {WriteDrop.BACKLOG: 3}
    world.run()
    assert world.writes.dropped == {WriteDrop.BACKLOG: 3, WriteDrop.STALE: 2}
