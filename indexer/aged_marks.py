"""One rank's unannounced claims of one kind, oldest first: bounded, expiring, exact to undo.

Each mark is one bit (OBSERVED or PREDICTED) in the block index. What is marked together makes a *run* with
one time. A mark belongs to the last run that set it; earlier ones still list the block. Where runs list
far more blocks than are marked they are swept, which at least halves them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from indexer.block_index import BlockIndex, Ref

_MAX_UNSWEPT = 1_024  # beyond twice the marks
_SHRUNK_AT_ONCE = 256


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks marked at one time, along a prompt."""

    marked_at: float
    refs: list[Ref]


class AgedMarks:
    """Marks of one bit in one slot. At its share of ``limit`` the oldest go, and are counted in ``num_dropped``.

    A share that shrinks is come down to bit by bit, with every further mark and every ``settle``.
    """

    def __init__(self, index: BlockIndex, slot: int, bit: int, limit: int) -> None:
        self._index = index
        self._slot = slot
        self._bit = bit
        self._limit = limit
        self._run_of: dict[Ref, _Run] = {}
        self._runs: deque[_Run] = deque()
        self._num_listed = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._run_of)

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._run_of

    def mark(self, refs: Sequence[Ref], now: float) -> None:
        """Set the bit on every block, or renew it; O(blocks), amortized.

        Args:
            refs: along a prompt; the last of them count as the oldest, so that what remains at the
                bound is a prefix.
        """
        marked = self._run_of
        is_fresh = marked.keys().isdisjoint(refs)
        fresh = refs if is_fresh else [ref for ref in refs if ref not in marked]
        self._index.claim(fresh, self._slot, self._bit)
        self.note(refs, now)

    def note(self, refs: Sequence[Ref], now: float) -> None:
        """The bit is set on every block: keep, or renew, their marks; O(blocks), amortized.

        Args:
            refs: as for ``mark``.
        """
        if refs:
            self._insert(_Run(now, list(refs)), len(self._runs))

    def _insert(self, run: _Run, place: int) -> None:
        self._run_of.update(dict.fromkeys(run.refs, run))
        self._runs.insert(place, run)
        self._num_listed += len(run.refs)
        self._shrink(len(run.refs) + _SHRUNK_AT_ONCE)
        if self._num_listed > 2 * len(self._run_of) + _MAX_UNSWEPT:
            self._sweep()

    def settle(self) -> None:
        """Come nearer to a share that has shrunk; O(1)."""
        self._shrink(_SHRUNK_AT_ONCE)

    def restore(self, refs: Sequence[Ref], at: float) -> None:
        """Set the bit on every block that has no mark, as of that time, which newer marks may have gone by.

        O(blocks + runs marked later), amortized.

        Args:
            refs: each at most once; along a prompt, as for ``mark``.
        """
        refs = [ref for ref in refs if ref not in self._run_of]
        if not refs:
            return
        self._index.claim(refs, self._slot, self._bit)
        place = len(self._runs)
        while place and self._runs[place - 1].marked_at > at:
            place -= 1
        self._insert(_Run(at, list(refs)), place)

    def unmark(self, refs: Iterable[Ref]) -> None:
        """Clear the bit where it is set."""
        pop = self._run_of.pop
        self._release([ref for ref in refs if pop(ref, None) is not None])

    def unmark_until(self, refs: Iterable[Ref], at: float) -> int:
        """Clear the bit where it was last set up to that time; on how many blocks."""
        runs = ((ref, self._run_of.get(ref)) for ref in refs)
        older = [ref for ref, run in runs if run is not None and run.marked_at <= at]
        self.unmark(older)
        return len(older)

    def unmark_up_to(self, ref: Ref, num_before: int) -> None:
        """Clear the bit on a block, and on up to so many before it along its prompt; O(run)."""
        run = self._run_of.get(ref)
        if run is not None:
            end = run.refs.index(ref) + 1
            self.unmark(run.refs[max(0, end - 1 - num_before) : end])

    def forget(self, ref: Ref) -> None:
        """The bit has been cleared by an event: drop the mark."""
        del self._run_of[ref]

    def forget_all(self, refs: Iterable[Ref]) -> None:
        """The bit has been cleared on every block: drop the marks."""
        for ref in refs:
            del self._run_of[ref]

    def expire(self, before: float) -> None:
        """Clear every mark last set before that time; O(expired)."""
        while self._runs and self._runs[0].marked_at < before:
            run = self._runs.popleft()
            self._num_listed -= len(run.refs)
            self.unmark(self._marks_of(run))

    def clear(self) -> None:
        """Clear all marks."""
        refs = list(self._run_of)
        self._run_of.clear()
        self._runs.clear()
        self._num_listed = 0
        self._release(refs)

    def runs(self) -> list[tuple[float, Sequence[Ref]]]:
        """What is marked, by the time of the mark, oldest first; O(listed)."""
        runs = [(run.marked_at, self._marks_of(run)) for run in self._runs]
        return [(at, refs) for at, refs in runs if refs]

    def move(self, slot: int) -> list[Ref]:
        """Begin anew in another slot; O(marks), but no bit is touched.

        Returns:
            What was marked in the old one, whose bits stay as they are.
        """
        left = list(self._run_of)
        self._run_of, self._runs, self._num_listed = {}, deque(), 0
        self._slot = slot
        return left

    def check(self, expected: set[Ref]) -> None:
        """Verify that exactly the blocks ``expected`` are marked, the order, and the bounds."""
        assert self._run_of.keys() == expected, f"{self._run_of.keys() ^ expected}"
        assert len(self._run_of) <= self._limit
        times = [run.marked_at for run in self._runs]
        assert times == sorted(times), "runs are out of order"
        listed = [ref for run in self._runs for ref in self._marks_of(run)]
        assert set(listed) == expected, "marks that no run lists"
        assert self._num_listed == sum(len(run.refs) for run in self._runs)
        assert self._num_listed <= 2 * self._limit + _MAX_UNSWEPT

    def _marks_of(self, run: _Run) -> list[Ref]:
        get = self._run_of.get
        return [ref for ref in run.refs if get(ref) is run]

    def _shrink(self, max_blocks: int) -> None:
        excess = len(self._run_of) - self._index.share.of(self._limit)
        if excess > 0:
            self._drop_oldest(min(excess, max_blocks))

    def _drop_oldest(self, count: int) -> None:
        """Clear the oldest marks; the last blocks of a run go first."""
        dropped: list[Ref] = []
        while len(dropped) < count:
            run = self._runs[0]
            while run.refs and len(dropped) < count:
                ref = run.refs.pop()
                self._num_listed -= 1
                if self._run_of.get(ref) is run:
                    del self._run_of[ref]
                    dropped.append(ref)
            if not run.refs:
                self._runs.popleft()
        self.num_dropped += count
        self._release(dropped)

    def _sweep(self) -> None:
        """Drop from each run what later ones have renewed, or what is no longer marked."""
        for run in self._runs:
            run.refs = self._marks_of(run)
        self._runs = deque(run for run in self._runs if run.refs)
        self._num_listed = sum(len(run.refs) for run in self._runs)

    def _release(self, refs: Sequence[Ref]) -> None:
        self._index.release(refs, self._slot, self._bit)
