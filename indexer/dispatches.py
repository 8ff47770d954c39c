"""Which prompts were lately sent to one rank: what they compute needs no other explanation.

Two uses. Blocks of a dispatched prompt are predicted until they are heard of or time out, so that a burst
neither scatters nor herds. And when an engine reports a hit that no claim explains, another request with
the same beginning may have computed those blocks. It has not, if it reports that it reused them itself,
nor if its stores must have been heard before the decision.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from indexer.mask_runs import BitRun, numbers_of, parts_of
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims
from indexer.slot_bits import HELD
from protocol import KeySpace

MAX_PROMPTS = 1_024
MAX_BLOCKS = 262_144
PROMPT_LAG_S = 2.0
"""How long after its first byte the stores of a request's prompt may be unheard."""
ANSWER_LAG_S = 10.0
"""How long after its end those of its answer may be: engines flush them every so many steps."""
SILENT_S = 60.0
"""A request not heard of for so long has been given up: nobody says when one is cancelled."""


@dataclass(slots=True, eq=False)
class Dispatch:
    """One prompt sent to the rank.

    Attributes:
        unknown: indexes of the blocks of which nothing was known at dispatch, ascending.
        begun_at, ended_at: when its answer did; None before.
        reused: leading blocks that the engine took from its cache, as it reported; None before, and where
            it does not say.
    """

    key_space: KeySpace
    keys: Sequence[int]
    unknown: Sequence[int]
    dispatched_at: float
    begun_at: float | None = None
    ended_at: float | None = None
    reused: int | None = None

    def prompt_unheard_until(self) -> float:
        """Up to when stores of its prompt may be unheard."""
        begun_at = self.begun_at
        return self.dispatched_at + SILENT_S if begun_at is None else begun_at + PROMPT_LAG_S

    def answer_unheard_until(self) -> float:
        """Up to when stores of its answer may be."""
        if self.ended_at is not None:
            return self.ended_at + ANSWER_LAG_S
        return (self.dispatched_at if self.begun_at is None else self.begun_at) + SILENT_S


@dataclass(frozen=True, slots=True)
class Origin:
    """Where blocks of one prompt may have come from.

    Attributes:
        nowhere: those that no other request can have computed.
        uncertain: those that only requests may have computed whose reports are missing.
    """

    nowhere: Sequence[int]
    uncertain: Sequence[int]


@dataclass(slots=True, eq=False)
class _Alike:
    """Dispatches of the same blocks, oldest first.

    Attributes:
        waiting: those whose answers have not begun, among others whose answers have.
    """

    every: deque[Dispatch] = field(default_factory=deque)
    waiting: deque[Dispatch] = field(default_factory=deque)

    def add(self, dispatch: Dispatch) -> None:
        self.every.append(dispatch)
        self.waiting.append(dispatch)

    def drop_oldest(self) -> None:
        if self.waiting and self.waiting[0] is self.every[0]:
            self.waiting.popleft()
        self.every.popleft()

    def next_waiting(self) -> Dispatch | None:
        """Take the oldest whose answer has not begun. O(1), amortized."""
        while self.waiting:
            dispatch = self.waiting.popleft()
            if dispatch.begun_at is None:
                return dispatch
        return None

    def nearest(self, at: float) -> Dispatch:
        """The one dispatched nearest to that time, the oldest of several; O(log dispatches)."""
        later = bisect_left(self.every, at, key=_dispatched_at)
        if later == 0:
            return self.every[0]
        earlier = self.every[later - 1].dispatched_at
        if later < len(self.every) and self.every[later].dispatched_at - at < at - earlier:
            return self.every[later]
        return self.every[bisect_left(self.every, earlier, key=_dispatched_at)]


class Dispatches:
    """The last 1,024 prompts of one rank, at most a share of 262,144 blocks in all; the oldest go first.

    What a forgotten one may have computed is not known, so it explains everything that it can.
    """

    def __init__(self, claims: RankClaims) -> None:
        self._claims = claims
        self._recent: deque[Dispatch] = deque()
        self._same: dict[tuple[KeySpace, int], _Alike] = {}  # by last key
        self._num_blocks = 0
        self._forgotten_until = -math.inf

    def __len__(self) -> int:
        return len(self._recent)

    def dispatch(self, blocks: PromptBlocks, now: float) -> None:
        """Predict every block that the rank does not hold. O(blocks)."""
        if not blocks.keys:
            return
        refs, runs = self._claims.look(blocks)
        missing = [run for run in runs if not run.bits & HELD]
        self._claims.predicted.mark(parts_of(refs, missing), now)
        self._claims.index.drop_unused()
        keys = blocks.packed_keys
        dispatch = Dispatch(blocks.key_space, keys, _zeros(runs), now)
        self._recent.append(dispatch)
        name = _name(blocks)
        same = self._same.get(name)
        if same is None:
            same = self._same[name] = _Alike()
        same.add(dispatch)
        self._num_blocks += len(keys)
        self.settle_share()

    def settle_share(self) -> None:
        """Keep no more than the share, which may have shrunk; O(what has to go)."""
        max_blocks = self._claims.index.share.of(MAX_BLOCKS)
        while len(self._recent) > MAX_PROMPTS or self._num_blocks > max_blocks:
            self._forget_oldest()

    def begin(self, blocks: PromptBlocks, now: float) -> None:
        """The answer to this prompt began; of several alike, the oldest one's. O(1), amortized."""
        same = self._same.get(_name(blocks)) if blocks.keys else None
        dispatch = None if same is None else same.next_waiting()
        if dispatch is not None:
            dispatch.begun_at = now

    def end(
        self, blocks: PromptBlocks, reused: int | None, decided_at: float, now: float
    ) -> Dispatch | None:
        """The answer to the prompt dispatched at that time ended. O(log dispatches).

        Args:
            reused: leading blocks that the engine took from its cache; None where it does not say.

        Returns:
            The dispatch; None where it is forgotten.
        """
        same = self._same.get(_name(blocks)) if blocks.keys else None
        if same is None:
            return None
        own = same.nearest(decided_at)
        own.begun_at = now if own.begun_at is None else own.begun_at
        own.ended_at, own.reused = now, reused
        return own

    def alike(self, blocks: PromptBlocks) -> Sequence[Dispatch]:
        """Dispatches of these very blocks, oldest first."""
        same = self._same.get(_name(blocks)) if blocks.keys else None
        return () if same is None else same.every

    def origin(self, own: Dispatch, open_blocks: Sequence[int]) -> Origin:
        """Which of these blocks of a prompt other requests may have computed. O(prompts × log blocks).

        Requests dispatched after its answer began are too late, and so are those whose stores had been
        heard when it was dispatched. A request whose whole prompt begins this one may have computed
        what follows, too: its answer.

        Args:
            own: a dispatch that has ended.
            open_blocks: indexes, ascending, at least one.
        """
        at, until = own.dispatched_at, own.begun_at
        assert until is not None
        if at <= self._forgotten_until:
            return Origin((), ())
        left, uncertain = set(open_blocks), set[int]()
        first = open_blocks[0]
        for other in self._recent:
            is_computing = other.prompt_unheard_until() >= at
            is_answering = other.answer_unheard_until() >= at
            if other is own or other.dispatched_at > until or not (is_computing or is_answering):
                continue
            shared = _common_prefix(other.keys, own.keys, first)
            if not shared or other.key_space != own.key_space:
                continue
            if is_answering and shared == len(other.keys):
                left.difference_update(range(shared, len(own.keys)))
            if is_computing and other.reused is None:
                uncertain.update(range(shared))
            elif is_computing:
                left.difference_update(range(other.reused or 0, shared))
        return Origin(sorted(left - uncertain), sorted(left & uncertain))

    def clear(self) -> None:
        """Forget everything: the engine is a new one."""
        self._recent.clear()
        self._same.clear()
        self._num_blocks = 0
        self._forgotten_until = -math.inf

    def check(self) -> None:
        """Verify the bounds, and that both views agree."""
        assert self._num_blocks == sum(len(dispatch.keys) for dispatch in self._recent)
        assert len(self._recent) <= MAX_PROMPTS
        assert self._num_blocks <= MAX_BLOCKS
        alike = [id(dispatch) for same in self._same.values() for dispatch in same.every]
        assert sorted(alike) == sorted(map(id, self._recent))
        for same in self._same.values():
            assert same.every, "nothing under a key"
            unbegun = [dispatch for dispatch in same.every if dispatch.begun_at is None]
            assert unbegun == [one for one in same.waiting if one.begun_at is None]
            assert set(same.waiting) <= set(same.every), "a forgotten dispatch waits"

    def _forget_oldest(self) -> None:
        oldest = self._recent.popleft()
        self._num_blocks -= len(oldest.keys)
        name = (oldest.key_space, oldest.keys[-1])
        same = self._same[name]
        assert same.every[0] is oldest
        same.drop_oldest()
        if not same.every:
            del self._same[name]
        until = max(oldest.prompt_unheard_until(), oldest.answer_unheard_until())
        self._forgotten_until = max(self._forgotten_until, until)


def _name(blocks: PromptBlocks) -> tuple[KeySpace, int]:
    return blocks.key_space, blocks.keys[-1]


def _dispatched_at(dispatch: Dispatch) -> float:
    return dispatch.dispatched_at


def _zeros(runs: Sequence[BitRun]) -> Sequence[int]:
    """Numbers of the blocks without a bit; a range where they are one run."""
    found = [run for run in runs if not run.bits]
    if len(found) == 1:
        return range(found[0].start, found[0].end)
    return tuple(numbers_of(found))


def _common_prefix(keys: Sequence[int], others: Sequence[int], interest: int) -> int:
    """Length of the common prefix, or any length up to ``interest`` where it is not longer than that.

    O(log blocks), for equal keys have equal predecessors.
    """
    low, high = 0, min(len(keys), len(others))
    if high > interest and keys[interest] != others[interest]:
        high = interest
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle - 1] == others[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
