"""The tree core of the simulated worker: inserts, matches and evictions a second at 10⁵ and 10⁶ pages.

Why: every simulated request is a match, two inserts and the evictions that make room; a fleet in virtual time
does millions of each, and no cost may grow with what is cached. An operation is a prompt of 64 pages of 16 tokens,
of which every eight share the first 16; an eviction frees the 48 of a prompt alone. CPU time, events
recorded and taken. Baseline in the same run: a flat cache, one ordered dictionary of chained page digests, which
keeps no tiers, locks or tree order and announces nothing.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from time import process_time_ns
from typing import Protocol

from benchmarks.measurement import Measurement, main, measured
from worker.tree import CacheKey, TreeConfig, TreeCore

PAGE_SIZE = 16
PROMPT_PAGES = 64
SHARED_PAGES = 16
OWN_PAGES = PROMPT_PAGES - SHARED_PAGES
SHARERS = 8
SIZES = (100_000, 1_000_000)
OPERATIONS = ("insert", "match", "evict")
SEED = 1


def prompt_of(number: int) -> CacheKey:
    """The prompt of that number: its own pages behind those that its neighbours share."""
    shared, own = Random(number // SHARERS), Random(-1 - number)
    head = shared.randbytes(SHARED_PAGES * PAGE_SIZE)
    return CacheKey(tuple(head + own.randbytes(OWN_PAGES * PAGE_SIZE)))


class PageCache(Protocol):
    """What is measured."""

    def insert(self, key: CacheKey) -> None:
        """Cache a prompt."""
        ...

    def match(self, key: CacheKey) -> int:
        """Pages of it that are cached."""
        ...

    def evict(self, num_pages: int) -> None:
        """Free pages."""
        ...

    def __len__(self) -> int:
        """Pages held."""
        ...


class Tree:
    """The tree core, its events taken as they come."""

    def __init__(self, num_pages: int) -> None:
        tokens = (num_pages + 1_000 * PROMPT_PAGES) * PAGE_SIZE
        self.core = TreeCore(TreeConfig(PAGE_SIZE, tokens))

    def insert(self, key: CacheKey) -> None:
        """Cache a prompt."""
        self.core.insert(key)
        self.core.take_events()

    def match(self, key: CacheKey) -> int:
        """Pages of it that are cached."""
        return self.core.match(key).tokens // PAGE_SIZE

    def evict(self, num_pages: int) -> None:
        """Free pages."""
        self.core.evict_device(num_pages * PAGE_SIZE)
        self.core.take_events()

    def __len__(self) -> int:
        return self.core.device.held // PAGE_SIZE


class Flat:
    """Page digests by age: the last page of a prompt goes before the first."""

    def __init__(self) -> None:
        self._ages: OrderedDict[bytes, None] = OrderedDict()

    def insert(self, key: CacheKey) -> None:
        """Cache a prompt."""
        for digest in reversed(list(_digests(key))):
            self._ages[digest] = None
            self._ages.move_to_end(digest)

    def match(self, key: CacheKey) -> int:
        """Pages of it that are cached."""
        found = []
        for digest in _digests(key):
            if digest not in self._ages:
                break
            found.append(digest)
        for digest in reversed(found):
            self._ages.move_to_end(digest)
        return len(found)

    def evict(self, num_pages: int) -> None:
        """Free pages."""
        for _ in range(num_pages):
            self._ages.popitem(last=False)

    def __len__(self) -> int:
        return len(self._ages)


def _digests(key: CacheKey) -> Iterator[bytes]:
    content, digest = array("I", key.tokens).tobytes(), b""
    for start in range(0, len(content), 4 * PAGE_SIZE):
        digest = sha256(digest + content[start : start + 4 * PAGE_SIZE]).digest()
        yield digest


@dataclass(slots=True)
class Timing:
    """CPU ns of each operation, by its name and its round."""

    rounds: dict[str, list[list[int]]] = field(
        default_factory=lambda: {name: [] for name in OPERATIONS}
    )

    def measure(self, name: str, works: list[Callable[[], object]]) -> None:
        """Do a round of one operation."""
        spent = []
        for work in works:
            start = process_time_ns()
            work()
            spent.append(process_time_ns() - start)
        self.rounds[name].append(spent)

    def per_second(self, name: str) -> list[float]:
        """Operations a second, a figure a round."""
        return [1e9 * len(spent) / sum(spent) for spent in self.rounds[name]]

    def p99_us(self, name: str) -> list[float]:
        """The slow ones, a figure a round."""
        return [sorted(spent)[len(spent) * 99 // 100] / 1e3 for spent in self.rounds[name]]


def timed(cache: PageCache, num_pages: int, num_rounds: int, num_operations: int) -> Timing:
    """Fill a cache, then rounds of matches of what it holds, inserts, and evictions back to its size."""
    timing, rng, number = Timing(), Random(SEED), 0
    while len(cache) < num_pages:
        cache.insert(prompt_of(number))
        number += 1
    for _ in range(num_rounds):
        recent = range(number - num_pages // (2 * PROMPT_PAGES), number)  # not evicted yet
        known = [prompt_of(rng.choice(recent)) for _ in range(num_operations)]
        assert cache.match(known[0]) == PROMPT_PAGES
        timing.measure("match", [lambda key=key: cache.match(key) for key in known])  # type: ignore[misc]
        new = [prompt_of(number + i) for i in range(num_operations)]
        number += num_operations
        timing.measure("insert", [lambda key=key: cache.insert(key) for key in new])  # type: ignore[misc]
        num_evictions = (len(cache) - num_pages) // OWN_PAGES
        timing.measure("evict", [lambda: cache.evict(OWN_PAGES)] * num_evictions)
    return timing


def run(quick: bool) -> list[Measurement]:
    """Both caches at each size."""
    rows: list[Measurement] = []
    rounds, operations = (3, 100) if quick else (5, 500)
    for num_pages in (10_000,) if quick else SIZES:
        flat = timed(Flat(), num_pages, rounds, operations)
        tree = timed(Tree(num_pages), num_pages, rounds, operations)
        for name in OPERATIONS:
            label = f"{name}_{num_pages}_pages"
            peer = measured(f"flat_{label}", "operations/s", flat.per_second(name))
            rows.append(peer)
            rows.append(measured(label, "operations/s", tree.per_second(name), peer))
            rows.append(measured(f"{label}_p99", "CPU µs", tree.p99_us(name)))
    return rows


if __name__ == "__main__":
    main(str(__doc__).split(":", 1)[0], run)
