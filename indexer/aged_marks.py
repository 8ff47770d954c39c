"""One rank's unannounced claims of one kind, oldest first: bounded, expiring, exact to undo.

Each mark is one bit (OBSERVED or PREDICTED) in the block index. What is marked together makes a *run* with
one time. A mark belongs to the last run that set it; earlier ones still list the block. Where runs list
far more blocks than are marked they are swept, which at least halves them.

    run of turn 1   a b c d            turn 2 marks a b c d e f: the same run, longer and of its time
    run of turn 2   a b c d e f        another prompt marks a b x: a run of its own, that takes a b over

A conversation that grows costs its new blocks alone: its run is renewed as a whole.
"""

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from indexer.block_index import BlockIndex, Ref

_MAX_UNSWEPT = 1_024  # beyond twice the marks
_SHRUNK_AT_ONCE = 256
_MAX_TAKEN_BACK = 1_024


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks marked at one time.

    Attributes:
        num_owned: so many of the marks belong to it.
        is_prompt: the blocks are those of one prompt, in one key space.
    """

    marked_at: float
    refs: list[Ref]
    num_owned: int
    is_prompt: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all that it lists is marked, and its own."""
        return self.num_owned == len(self.refs)


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
        self._runs: OrderedDict[_Run, None] = OrderedDict()  # oldest first
        self._num_listed = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._run_of)

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._run_of

    def mark(self, refs: Sequence[Ref], now: float) -> None:
        """Set the bit on every block, or renew it; O(blocks), amortized.

        Args:
            refs: along a prompt, each once; the last of them count as the oldest, so that what remains at the
                bound is a prefix.
        """
        self._index.change_prompt(refs, self._slot, self._bit, 0)
        self.note(refs, now)

    def mark_any(self, refs: Iterable[Ref], now: float) -> None:
        """Set the bit on every block, or renew it, of whatever prompts and key spaces; O(blocks), amortized."""
        once = list(dict.fromkeys(refs))
        if once:
            self._index.claim(once, self._slot, self._bit)
            run = _Run(now, [], 0, is_prompt=False)
            self._runs[run] = None
            self._list(run, once)

    def note(self, refs: Sequence[Ref], now: float) -> None:
        """The bit is set on every block: keep, or renew, their marks; O(blocks), amortized.

        Args:
            refs: as for ``mark``.
        """
        if not refs:
            return
        run, num_known = self._grown_run(refs)
        if run is None:
            run = _Run(now, [], 0)
        run.marked_at = now
        self._runs[run] = None
        self._runs.move_to_end(run)
        self._list(run, refs[num_known:])

    def _grown_run(self, refs: Sequence[Ref]) -> tuple[_Run | None, int]:
        """The run that lists the first of these blocks, and nothing else, and their number; its marks are its own
        again. None where there is no such run."""
        get = self._run_of.get
        num_known = bisect_left(range(len(refs)), 1, key=lambda i: get(refs[i]) is None)
        run = get(refs[num_known - 1]) if num_known else None
        if run is None or len(run.refs) != num_known:
            return None, 0
        known = refs[:num_known]
        if run.refs != (known if isinstance(known, list) else list(known)):
            return None, 0
        num_lost = num_known - run.num_owned
        lost = refs[:num_lost]
        if num_lost > _MAX_TAKEN_BACK or any(get(ref) is run for ref in lost):
            return None, 0  # not the first ones
        self._take_over(run, lost)
        return run, num_known

    def _list(self, run: _Run, refs: Sequence[Ref]) -> None:
        """The run lists these blocks as well, and their marks belong to it."""
        run.refs += refs
        self._num_listed += len(refs)
        self._take_over(run, refs)
        self._shrink(len(refs) + _SHRUNK_AT_ONCE)
        if self._num_listed > 2 * len(self._run_of) + _MAX_UNSWEPT:
            self._sweep()

    def _take_over(self, run: _Run, refs: Sequence[Ref]) -> None:
        owners = self._run_of
        if not owners.keys().isdisjoint(refs):
            for owner, num_blocks in Counter(map(owners.get, refs)).items():
                if owner is not None:
                    owner.num_owned -= num_blocks
        owners.update(dict.fromkeys(refs, run))
        run.num_owned += len(refs)

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
        later: list[_Run] = []
        while self._runs and (last := next(reversed(self._runs))).marked_at > at:
            del self._runs[last]
            later.append(last)
        run = _Run(at, [], 0, is_prompt=False)
        self._runs.update(dict.fromkeys([run, *reversed(later)]))
        self._list(run, refs)

    def unmark(self, refs: Iterable[Ref]) -> None:
        """Clear the bit where it is set."""
        pop = self._run_of.pop
        gone: list[Ref] = []
        for ref in refs:
            run = pop(ref, None)
            if run is not None:
                run.num_owned -= 1
                gone.append(ref)
        self._release(gone)

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
        self._run_of.pop(ref).num_owned -= 1

    def forget_all(self, refs: Sequence[Ref]) -> None:
        """The bit has been cleared on every block: drop the marks."""
        owners = self._run_of
        run = owners[refs[0]] if refs else None
        if run is not None and run.is_whole and run.refs == refs:
            self._drop(run)
            deque(map(owners.__delitem__, refs), maxlen=0)
            return
        for ref in refs:
            owners.pop(ref).num_owned -= 1

    def expire(self, before: float) -> None:
        """Clear every mark last set before that time; O(expired)."""
        while self._runs and (run := next(iter(self._runs))).marked_at < before:
            self._drop(run)
            self._unmark_run(run, run.refs)

    def clear(self) -> None:
        """Clear all marks."""
        self._release(self._forget_everything())

    def runs(self) -> list[tuple[float, Sequence[Ref]]]:
        """What is marked, by the time of the mark, oldest first; O(listed)."""
        runs = [(run.marked_at, self._marks_of(run)) for run in self._runs]
        return [(at, refs) for at, refs in runs if refs]

    def move(self, slot: int) -> list[Ref]:
        """Begin anew in another slot; O(marks), but no bit is touched.

        Returns:
            What was marked in the old one, whose bits stay as they are.
        """
        self._slot = slot
        return self._forget_everything()

    def check(self, expected: set[Ref]) -> None:
        """Verify that exactly the blocks ``expected`` are marked, the order, and the bounds."""
        assert self._run_of.keys() == expected, f"{self._run_of.keys() ^ expected}"
        assert len(self._run_of) <= self._limit
        times = [run.marked_at for run in self._runs]
        assert times == sorted(times), "runs are out of order"
        owned = Counter(self._run_of.values())
        assert all(run.num_owned == owned.pop(run, 0) for run in self._runs), "miscounted marks"
        assert not owned, "marks of a run that is gone"
        listed = [ref for run in self._runs for ref in self._marks_of(run)]
        assert set(listed) == expected, "marks that no run lists"
        assert self._num_listed == sum(len(run.refs) for run in self._runs)
        assert self._num_listed <= 2 * self._limit + _MAX_UNSWEPT

    def _marks_of(self, run: _Run) -> list[Ref]:
        if run.is_whole:
            return run.refs
        get = self._run_of.get
        return [ref for ref in run.refs if get(ref) is run]

    def _forget_everything(self) -> list[Ref]:
        """What was marked."""
        left = list(self._run_of)
        self._run_of, self._runs, self._num_listed = {}, OrderedDict(), 0
        return left

    def _drop(self, run: _Run) -> None:
        del self._runs[run]
        self._num_listed -= len(run.refs)

    def _shrink(self, max_blocks: int) -> None:
        excess = len(self._run_of) - self._index.share.of(self._limit)
        if excess > 0:
            self._drop_oldest(min(excess, max_blocks))

    def _drop_oldest(self, count: int) -> None:
        """Clear the oldest marks; the last blocks of a run go first."""
        left = count
        while left:
            run = next(iter(self._runs))
            place = max(0, len(run.refs) - left) if run.is_whole else self._place_of(run, left)
            last = run.refs[place:]
            left -= self._unmark_run(run, last)
            del run.refs[place:]
            self._num_listed -= len(last)
            if not run.refs:
                del self._runs[run]
        self.num_dropped += count

    def _place_of(self, run: _Run, count: int) -> int:
        """From where on a run lists so many marks of its own, or all that it has."""
        place, get = len(run.refs), self._run_of.get
        while place and count:
            place -= 1
            count -= get(run.refs[place]) is run
        return place

    def _unmark_run(self, run: _Run, refs: list[Ref]) -> int:
        """Clear the marks of a run's own among the blocks at its end; how many there were."""
        owners = self._run_of
        if run.is_whole and run.is_prompt:
            deque(map(owners.__delitem__, refs), maxlen=0)
            self._index.change_prompt(refs, self._slot, 0, self._bit)
        else:
            refs = [ref for ref in refs if owners.get(ref) is run]
            for ref in refs:
                del owners[ref]
            self._release(refs)
        run.num_owned -= len(refs)
        return len(refs)

    def _sweep(self) -> None:
        """Drop from each run what later ones have renewed, or what is no longer marked."""
        for run in self._runs:
            run.refs = self._marks_of(run)
        self._runs = OrderedDict((run, None) for run in self._runs if run.refs)
        self._num_listed = len(self._run_of)

    def _release(self, refs: Sequence[Ref]) -> None:
        self._index.release(refs, self._slot, self._bit)
