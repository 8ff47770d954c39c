"""How old claims are, compared over all ranks: what a bound on their number needs, and nothing more.

A table of claims is a dictionary, and a dictionary keeps the order in which its entries came: the oldest of
each table is its first. Which of several tables has the oldest one is told by samples: of every ``grain``
entries the hash of one is noted with a stamp, which counts what was ever stored in any table. So an age costs
a 256th of an entry, and is known to a grain.

    table    a b c d e f g h i j k …      first: the oldest
    samples        d:7     h:19           a is as old as d, give or take a grain
"""

from typing import TypeVar

from protocol import EngineHash

V = TypeVar("V")
_MIN_SAMPLES = 64  # before those that are gone are dropped


class ClaimClock:
    """What all tables share.

    Attributes:
        num_stored: entries ever stored: the time that stamps are of.
        num_held: entries of all tables.
    """

    __slots__ = ("num_held", "num_stored")

    def __init__(self) -> None:
        self.num_stored = 0
        self.num_held = 0


class ClaimAges:
    """Ages of one table, which is to be noted after every change. O(1), amortized."""

    __slots__ = ("_clock", "_grain", "_last_stamp", "_num", "_samples", "_unsampled")

    def __init__(self, clock: ClaimClock, grain: int) -> None:
        self._clock = clock
        self._grain = grain
        self._num = 0
        self._samples: dict[EngineHash, int] = {}  # oldest first
        self._unsampled = grain
        self._last_stamp = 0

    def note(self, table: dict[EngineHash, V]) -> None:
        """Entries came at the end of the table, or entries went."""
        change = len(table) - self._num
        self._num += change
        clock = self._clock
        clock.num_held += change
        if change > 0:
            clock.num_stored += change
            self._unsampled += change
            if self._unsampled >= self._grain:
                self._sample(table)
        elif not table:
            self._samples = {}
            self._unsampled = self._grain

    def oldest(self, table: dict[EngineHash, V]) -> int | None:
        """About when the first entry came; None where there is none. O(samples that are gone)."""
        if not table:
            return None
        while self._samples:
            block_hash = next(iter(self._samples))
            if block_hash in table:
                return self._samples[block_hash]
            del self._samples[block_hash]
        return self._last_stamp

    def check(self, table: dict[EngineHash, V]) -> None:
        """Verify the count, the order, and the bound."""
        assert self._num == len(table), f"{self._num} noted, {len(table)} there"
        stamps = list(self._samples.values())
        assert stamps == sorted(stamps), "samples are out of order"

    def _sample(self, table: dict[EngineHash, V]) -> None:
        self._unsampled = 0
        last = next(reversed(table))
        self._samples.pop(last, None)
        self._samples[last] = self._last_stamp = self._clock.num_stored
        if len(self._samples) > 2 * len(table) // self._grain + _MIN_SAMPLES:
            self._samples = {h: stamp for h, stamp in self._samples.items() if h in table}
