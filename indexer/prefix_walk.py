"""The runs of several slots along one prompt: what each block counts as, and where each run ends.

A slot's *stretch* is the blocks since it last changed its kind. It is counted when it ends, so a walk costs
nothing where no holder changes. What a block counts as follows from its bits and from what the block before
counted as, by the rules of the slot's engine (`EngineProfile`):

    any_tier     its fastest tier
    gpu_first    the same, but behind a block of a lower tier GPU counts no more
    both         behind a predicted block everything counts as predicted
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from indexer.slot_bits import (
    GPU,
    HOST,
    INFERRED,
    OBSERVED,
    POOL_ANNOUNCED,
    POOL_EVENTS,
    PREDICTED,
    SLOT,
    STORAGE,
    STRIDE,
    WHOLE_SLOT,
)

_NOTHING, _GPU, _HOST, _STORAGE, _OBSERVED, _PREDICTED, _POOLED, _INFERRED = range(8)


class Run(NamedTuple):
    """The longest run of leading blocks in one slot, in blocks of each kind.

    ``observed`` blocks are held by evidence and by no announced tier faster than STORAGE;
    ``predicted`` ones follow the run. ``pooled`` and ``inferred`` ones are in a storage pool, as its own
    events say or as is concluded; ``storage`` ones are announced, by the rank or by another one of its pool.
    """

    gpu: int = 0
    host: int = 0
    storage: int = 0
    observed: int = 0
    predicted: int = 0
    pooled: int = 0
    inferred: int = 0

    @property
    def length(self) -> int:
        """Blocks held, without predicted ones."""
        return self.gpu + self.host + self.storage + self.observed + self.pooled + self.inferred


class SharedBits(NamedTuple):
    """A storage pool in one lookup.

    Attributes:
        shift: of the pool's own slot.
        announced: the STORAGE bits of all ranks that are attached to it.
        credited: the lowest bit of each slot that is looked up and attached to it.
    """

    shift: int
    announced: int
    credited: int


def with_shared(mask: int, pools: Iterable[SharedBits]) -> int:
    """The mask with what pools hold as bits of every rank that can fetch it. O(pools)."""
    for shift, announced, credited in pools:
        bits = _IN_POOL[mask >> shift & SLOT]
        if mask & announced:
            bits |= POOL_ANNOUNCED
        if bits:
            mask |= bits * credited
    return mask


_IN_POOL = tuple(
    (POOL_EVENTS if bits & (HOST | STORAGE) else 0) | (INFERRED if bits & OBSERVED else 0)
    for bits in range(SLOT + 1)
)


def _kind(bits: int) -> int:
    """What a block with these bits counts as: its fastest tier.

    Evidence says that the block is on GPU. It ranks behind an announced HOST copy all the same, so that
    the numbers of announced blocks stay exact, and before STORAGE, which costs far more. What is on its way
    to GPU is there before it could be fetched from a pool.
    """
    order = (
        (GPU, _GPU), (HOST, _HOST), (OBSERVED, _OBSERVED), (STORAGE, _STORAGE), (PREDICTED, _PREDICTED),
        (POOL_ANNOUNCED, _STORAGE), (POOL_EVENTS, _POOLED), (INFERRED, _INFERRED),
    )  # fmt: skip
    return next((kind for bit, kind in order if bits & bit), _NOTHING)


def _gpu_first(before: int, bits: int) -> int:
    """What a block counts as where GPU blocks come first; ``before``: the block before it."""
    on_gpu = bits & (GPU | OBSERVED)
    if before not in (_NOTHING, _GPU, _OBSERVED):
        return _kind(bits & ~on_gpu)
    return _kind(on_gpu or bits)


_Rules = tuple[tuple[int, ...], ...]
"""Kind of the block before (nothing at the start) → bits → kind."""


def _rules(*, is_gpu_first: bool) -> _Rules:
    rules = []
    for before in range(_INFERRED + 1):
        row = [
            _gpu_first(before, bits) if is_gpu_first else _kind(bits)
            for bits in range(WHOLE_SLOT + 1)
        ]
        if before == _PREDICTED:
            row = [_PREDICTED if bits else _NOTHING for bits in range(WHOLE_SLOT + 1)]
        rules.append(tuple(row))
    return tuple(rules)


_ANY_TIER = _rules(is_gpu_first=False)
_GPU_FIRST = _rules(is_gpu_first=True)
_WHOLE_SLOTS = bytes([0] + [WHOLE_SLOT] * 255)  # a byte with any bit becomes one with every bit


class _Stretch:
    """Slots on the way along a prompt: what their blocks count as since where, and their run so far.

    Slots that have been alike from the first block on share one, which never changes: one that goes on
    differently gets another.
    """

    __slots__ = ("counts", "kind", "rules", "start")

    def __init__(self, kind: int, rules: _Rules, start: int, counts: list[int]) -> None:
        self.kind = kind
        self.rules = rules
        self.start = start
        self.counts = counts

    def counted(self, index: int) -> list[int]:
        """The run with the blocks before ``index``."""
        counts = self.counts.copy()
        counts[self.kind] += index - self.start
        return counts


@lru_cache(maxsize=1_024)
def _first_stretches(first_mask: int, gpu_first: frozenset[int]) -> tuple[dict[int, _Stretch], int]:
    """Where a walk begins: the stretch of each slot, and the slots whose runs go on.

    Prompts that begin alike have the same holders on their first block.
    """
    stretches: dict[int, _Stretch] = {}
    row = first_mask.to_bytes(first_mask.bit_length() // 8 + 1, "little")
    shared: dict[tuple[int, bool], _Stretch] = {}
    for slot, bits in enumerate(row):
        if bits:
            is_gpu_first = slot in gpu_first
            rules = _GPU_FIRST if is_gpu_first else _ANY_TIER
            kind = rules[_NOTHING][bits]
            stretch = shared.get((kind, is_gpu_first))
            if stretch is None:
                stretch = _Stretch(kind, rules, 0, [0] * (_INFERRED + 1))
                shared[kind, is_gpu_first] = stretch
            stretches[slot] = stretch
    return stretches, int.from_bytes(row.translate(_WHOLE_SLOTS), "little")


class PrefixWalk:
    """The runs of several slots while the walk along a prompt goes on.

    Args:
        first_mask: bits of the slots on the first block.
        gpu_first: slots of ranks whose engine takes GPU blocks first.

    Attributes:
        alive: the slots whose runs go on, every bit of each.
    """

    __slots__ = ("_stretches", "alive")

    def __init__(self, first_mask: int, gpu_first: frozenset[int] = frozenset()) -> None:
        stretches, self.alive = _first_stretches(first_mask, gpu_first)
        self._stretches = stretches.copy()

    def turn(self, index: int, changed: int, mask: int) -> int:
        """At block ``index`` the bits ``changed`` differ from the block before.

        Returns:
            The slots whose runs go on, every bit of each.
        """
        stretches = self._stretches
        turned: dict[tuple[_Stretch, int], _Stretch] = {}
        while changed:
            slot = (changed.bit_length() - 1) // STRIDE
            shift = slot * STRIDE
            changed &= (1 << shift) - 1
            stretch = stretches[slot]
            before = stretch.kind
            kind = stretch.rules[before][mask >> shift & WHOLE_SLOT]
            if kind == before:
                continue
            after = turned.get((stretch, kind))
            if after is None:
                after = _Stretch(kind, stretch.rules, index, stretch.counted(index))
                turned[stretch, kind] = after
            stretches[slot] = after
            if not kind:
                self.alive &= ~(WHOLE_SLOT << shift)
        return self.alive

    def runs(self, length: int) -> dict[int, Run]:
        """Close every stretch at the prompt's end. Slots that were alike share one value."""
        runs: dict[int, Run] = {}
        shared: dict[_Stretch, Run] = {}
        for slot, stretch in self._stretches.items():
            run = shared.get(stretch)
            if run is None:
                run = shared[stretch] = Run(*stretch.counted(length)[_GPU:])
            runs[slot] = run
        return runs
