"""Fetches from storage: which are begun, how long each is waited for, and anchors that change on the way."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.worker.tree.announced import Announced
from tests.worker.virtual_time import MODEL, prompt_of
from worker.prefetch import Prefetch, Prefetcher, PrefetchLimits, PrefetchPolicy, PrefetchSkip
from worker.storage import MemoryStorage
from worker.tree import CacheKey, StoragePage, TreeConfig, TreeCore, WritePolicy

PAGE_SIZE = 4
PROMPT = CacheKey(tuple(prompt_of(0, 32)))
NUM_PAGES = 8
BRANCH = CacheKey((*PROMPT.tokens[:20], 1, 2, 3, 4))
"""Leaves PROMPT after five pages."""
FETCH_S = 32 / MODEL.fetch_tokens_per_s


def head(num_pages: int) -> CacheKey:
    """The first pages of PROMPT."""
    return CacheKey(PROMPT.tokens[: num_pages * PAGE_SIZE])


class Bench:
    """A tree, a storage that holds the first pages of PROMPT, what is fetched between them, and a listener."""

    def __init__(
        self,
        *,
        limits: PrefetchLimits | None = None,
        stored: int = NUM_PAGES,
        host_tokens: int = 128,
        write_policy: WritePolicy = WritePolicy.WRITE_THROUGH,
        threshold: int | None = None,
    ) -> None:
        self.tree = TreeCore(
            TreeConfig(PAGE_SIZE, 128, host_tokens, write_policy, threshold, load_back_threshold=0)
        )
        self.storage = MemoryStorage(max(stored, 1))
        self.storage.put(self.tree.storage_pages(None, head(stored))[::-1])
        limits = limits or PrefetchLimits(PAGE_SIZE, PrefetchPolicy.WAIT_COMPLETE)
        self.prefetcher = Prefetcher(self.tree, self.storage, MODEL, limits)
        self._announced = Announced()
        for key in (PROMPT, BRANCH):
            self._announced.know([page.event_hash for page in self.tree.page_hashes(key)])

    def hold(self, num_pages: int, *, is_backed: bool = True) -> None:
        """The tree holds the first pages of PROMPT, on host too or not."""
        self.tree.insert(head(num_pages))
        if is_backed:
            self.acknowledge()

    def acknowledge(self) -> int:
        """Copies to host that are complete now."""
        return sum(self.tree.acknowledge(one).num_tokens for one in self.tree.pending_backups())

    def issue(self) -> Prefetch:
        prefetch = self.prefetcher.issue(PROMPT, 0.0)
        assert prefetch is not None
        return prefetch

    def check(self) -> None:
        """What was announced is what is readable; slots add up."""
        self._announced.hear(self.tree.take_events())
        self._announced.check(self.tree.residency())
        self.prefetcher.check()
        host = self.tree.host
        assert host is not None
        cached = self.tree.residency()
        pages = len(cached.host) + len(cached.host_in_flight)
        assert host.held == pages * PAGE_SIZE + self.prefetcher.in_flight_tokens
        self.tree.check()


@pytest.mark.parametrize(
    ("threshold", "stored", "held", "begun", "skipped"),
    [
        (32, 8, 0, 32, None),
        (16, 4, 0, 16, None),
        (16, 8, 4, 16, None),
        (20, 8, 4, None, None),  # 16 tokens are left: storage is not asked
        (20, 4, 0, None, PrefetchSkip.BELOW_THRESHOLD),
        (4, 0, 0, None, PrefetchSkip.BELOW_THRESHOLD),
        (33, 8, 0, None, None),
    ],
)
def test_what_is_left_and_what_is_stored_both_reach_the_threshold(
    threshold: int, stored: int, held: int, begun: int | None, skipped: PrefetchSkip | None
) -> None:
    limits = PrefetchLimits(threshold, PrefetchPolicy.WAIT_COMPLETE)
    bench = Bench(limits=limits, stored=stored)
    if held:
        bench.hold(held)
    prefetch = bench.prefetcher.issue(PROMPT, 0.0)
    assert (None if prefetch is None else prefetch.num_tokens) == begun
    assert bench.prefetcher.counters.skipped == ({} if skipped is None else {skipped: 1})
    bench.check()


@pytest.mark.parametrize(
    ("host_tokens", "reserved", "threshold", "begun", "skipped"),
    [
        (64, 0, 32, 32, None),
        (48, 0, 20, 24, None),  # half of the pool
        (48, 0, 28, None, PrefetchSkip.CAPACITY),
        (64, 36, 32, None, PrefetchSkip.HOST_FULL),
    ],
)
def test_half_of_the_host_pool_at_most_and_what_can_be_had_of_it(
    host_tokens: int, reserved: int, threshold: int, begun: int | None, skipped: PrefetchSkip | None
) -> None:
    limits = PrefetchLimits(threshold, PrefetchPolicy.WAIT_COMPLETE)
    bench = Bench(limits=limits, host_tokens=host_tokens)
    assert bench.tree.reserve_host(reserved)
    prefetch = bench.prefetcher.issue(PROMPT, 0.0)
    assert (None if prefetch is None else prefetch.num_tokens) == begun
    assert bench.prefetcher.counters.skipped == ({} if skipped is None else {skipped: 1})


@pytest.mark.parametrize(
    ("policy", "deadline"),
    [
        (PrefetchPolicy.BEST_EFFORT, 0.0),
        (PrefetchPolicy.WAIT_COMPLETE, math.inf),
        (PrefetchPolicy.TIMEOUT, 0.002 + 0.256 * 32 / 1024),
    ],
)
def test_a_fetch_is_waited_for_as_the_policy_says(policy: PrefetchPolicy, deadline: float) -> None:
    limits = PrefetchLimits(PAGE_SIZE, policy, timeout_base_s=0.002, timeout_s_per_1k_tokens=0.256)
    bench = Bench(limits=limits)
    prefetch = bench.issue()
    assert prefetch.deadline == deadline
    due = min(deadline, FETCH_S)
    assert bench.prefetcher.next_due() == due
    assert bench.prefetcher.is_due(prefetch, due)
    assert not bench.prefetcher.is_due(prefetch, due - 1e-6)
    arrived = int(due / FETCH_S * NUM_PAGES)
    assert bench.prefetcher.settle(prefetch, due) == arrived * PAGE_SIZE
    assert bench.prefetcher.counters.abandoned_tokens == 32 - arrived * PAGE_SIZE
    assert len(bench.tree.residency().host) == arrived
    bench.check()


def test_limits_are_the_engines() -> None:
    limits = PrefetchLimits()
    assert (limits.threshold, limits.policy) == (256, PrefetchPolicy.TIMEOUT)
    assert (limits.timeout_base_s, limits.timeout_s_per_1k_tokens) == (1.0, 0.25)


@dataclass(frozen=True)
class Change:
    """What becomes of an anchor of four pages, or of what follows it, and what the refill of four then adds.

    Attributes:
        is_backed: whether the anchor was on host when the fetch began.
        is_dropped: nothing is refilled.
    """

    happens: Callable[[Bench], object]
    refilled: int
    is_backed: bool = True
    is_dropped: bool = False
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH


CHANGES = {
    "nothing": Change(lambda _: None, 4),
    "demoted": Change(lambda b: b.tree.evict_device(128), 4),
    "host pressure spares it": Change(lambda b: b.tree.evict_host(128), 4),
    "demoted, then host pressure": Change(
        lambda b: (b.tree.evict_device(128), b.tree.evict_host(128)), 4
    ),
    "split": Change(lambda b: b.tree.match(head(2)), 4),
    "split, and its head demoted": Change(
        lambda b: (b.tree.match(head(2)), b.tree.evict_device(128)), 4
    ),
    "demoted and loaded back": Change(
        lambda b: (b.tree.evict_device(128), b.tree.load_back(b.tree.match(head(4)))), 4
    ),
    "computed by another, whole": Change(lambda b: (b.tree.insert(PROMPT), b.acknowledge()), 0),
    "computed by another, its copy on the way": Change(lambda b: b.tree.insert(PROMPT), 0),
    "computed by another, in part": Change(lambda b: (b.tree.insert(head(6)), b.acknowledge()), 2),
    "another way on": Change(lambda b: b.tree.insert(BRANCH), 3),
    "never backed": Change(lambda _: None, 0, is_backed=False, is_dropped=True),
    "never backed, pressure spares it": Change(
        lambda b: b.tree.evict_device(128), 0, is_backed=False, is_dropped=True
    ),
    "backed on the way": Change(
        lambda b: (b.tree.back_up(b.tree.match(head(4)).node), b.acknowledge()), 4, is_backed=False
    ),
    "its backup begun": Change(
        lambda b: b.tree.back_up(b.tree.match(head(4)).node), 4, is_backed=False
    ),
    "never backed, write_back": Change(
        lambda _: None, 4, is_backed=False, write_policy=WritePolicy.WRITE_BACK
    ),
    "written back": Change(
        lambda b: b.tree.evict_device(128), 4, is_backed=False, write_policy=WritePolicy.WRITE_BACK
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_an_anchor_may_change_while_the_fetch_is_on_its_way(change: Change) -> None:
    is_plain = change.write_policy is WritePolicy.WRITE_THROUGH
    threshold = 9 if is_plain and not change.is_backed else None
    bench = Bench(write_policy=change.write_policy, threshold=threshold)
    bench.hold(4, is_backed=change.is_backed)
    prefetch = bench.issue()
    assert prefetch.num_tokens == 4 * PAGE_SIZE
    change.happens(bench)
    bench.check()
    assert bench.prefetcher.settle(prefetch, FETCH_S) == change.refilled * PAGE_SIZE
    bench.check()
    assert bench.tree.counters.refills_dropped == change.is_dropped
    assert bench.prefetcher.in_flight_tokens == 0
    bench.acknowledge()
    assert bench.tree.match(PROMPT).tokens == (4 if change.is_dropped else 8) * PAGE_SIZE
    bench.check()


def test_a_fetch_under_an_anchor_that_is_gone_and_here_anew_is_dropped() -> None:
    """The tree core keeps an anchor that is locked; one that is not may be another node by then."""
    bench = Bench()
    bench.hold(4)
    anchor = bench.tree.match(head(4)).node
    assert bench.tree.reserve_host(4 * PAGE_SIZE)
    bench.tree.evict_device(128)
    bench.tree.evict_host(128)
    bench.hold(4)
    assert bench.tree.match(head(4)).node is not anchor
    result = bench.tree.insert_host(anchor, CacheKey(PROMPT.tokens[4 * PAGE_SIZE :]))
    assert result.is_dropped
    assert bench.tree.match(PROMPT).tokens == 4 * PAGE_SIZE
    bench.check()


def test_pages_that_storage_lost_meanwhile_end_the_refill() -> None:
    bench = Bench(stored=6)
    prefetch = bench.issue()
    bench.storage.put([StoragePage(bytes([n]) * 32, (n,)) for n in range(4)])
    assert bench.prefetcher.settle(prefetch, FETCH_S) == 2 * PAGE_SIZE
    assert bench.prefetcher.counters.abandoned_tokens == 4 * PAGE_SIZE
    bench.check()


def test_a_fetch_whose_request_is_gone_gives_all_back() -> None:
    bench = Bench()
    bench.hold(4)
    bench.prefetcher.drop(bench.issue())
    assert bench.prefetcher.counters.abandoned_tokens == 4 * PAGE_SIZE
    assert bench.prefetcher.next_due() is None
    assert bench.tree.evict_device(128) == bench.tree.evict_host(128) == 4 * PAGE_SIZE
    bench.check()
