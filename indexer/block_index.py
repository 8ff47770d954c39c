"""Who holds which block: one integer a block, a few bits a rank.

Every key space is a dictionary from block key to a mask. A rank owns a *slot*, one byte of every mask:

    bit  0    1     2        3         4          5-7
         GPU  HOST  STORAGE  OBSERVED  PREDICTED  unused     (0-2 are announced by events)

Blocks of one prefix nearly always have the same holders, so equal masks are interned: they share memory,
and a lookup that compares each mask with the one before pays one dictionary access a block however many
ranks there are. A *ref* names a block across key spaces in one integer, ``space number << 64 | key``; the
first space has number 0, there a ref is the key itself.

Invariants: no mask is 0 and no space is empty (the last holder takes the node along, the last node its
space); numbers of spaces are never used twice, so a ref that outlives its space resolves to nothing;
a slot is free only while no mask has a bit of it; one that is given up with its bits is retired before.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import NamedTuple, NewType, cast

from indexer.claim_ages import ClaimClock
from indexer.retired_slots import RetiredSlots
from protocol import BlockKey, KeySpace, Tier

Ref = NewType("Ref", int)
"""A block in a key space, as one integer."""

STRIDE = 8
GPU = 1 << Tier.GPU
HOST = 1 << Tier.HOST
STORAGE = 1 << Tier.STORAGE
OBSERVED = 8
PREDICTED = 16
ANNOUNCED = GPU | HOST | STORAGE
HELD = ANNOUNCED | OBSERVED
SLOT = GPU | HOST | STORAGE | OBSERVED | PREDICTED

_KEY_BITS = 64
KEY_MASK = (1 << _KEY_BITS) - 1
_MAX_INTERNED = 1 << 16


class Run(NamedTuple):
    """The longest run of leading blocks in one slot, in blocks of each kind.

    ``observed`` blocks are held by evidence and by no announced tier faster than STORAGE;
    ``predicted`` ones follow the run.
    """

    gpu: int = 0
    host: int = 0
    storage: int = 0
    observed: int = 0
    predicted: int = 0

    @property
    def length(self) -> int:
        """Blocks held, without predicted ones."""
        return self.gpu + self.host + self.storage + self.observed


def slots_mask(slots: Iterable[int]) -> int:
    """Every bit of these slots, as a mask."""
    mask = 0
    for slot in slots:
        mask |= SLOT << slot * STRIDE
    return mask


@dataclass(slots=True, eq=False)
class Space:
    """One key space: its blocks and their masks."""

    key_space: KeySpace
    number: int
    masks: dict[int, int]

    def refs(self, keys: Sequence[BlockKey]) -> Sequence[Ref]:
        """Refs of ``keys``; O(1) in the space numbered 0."""
        base = self.number << _KEY_BITS
        return cast("Sequence[Ref]", [base | key for key in keys] if base else keys)


class BlockIndex:
    """All blocks of the fleet. Pure; one owner."""

    def __init__(self) -> None:
        self._spaces: dict[KeySpace, Space] = {}
        self._numbered: dict[int, Space] = {}
        self._next_number = 0
        self._unused: list[Space] = []
        self._free_slots: list[int] = []
        self._num_slots = 0
        self._interned: dict[int, int] = {}
        self.retired: RetiredSlots[Ref] = RetiredSlots()
        self.clock = ClaimClock()

    def take_slot(self) -> int:
        """The lowest free slot."""
        if self._free_slots:
            return heapq.heappop(self._free_slots)
        self._num_slots += 1
        return self._num_slots - 1

    def free_slot(self, slot: int) -> None:
        """Give a slot back, of which no mask has a bit any more."""
        heapq.heappush(self._free_slots, slot)

    def sweep(self, max_blocks: int) -> bool:
        """Clean up behind retired slots; O(``max_blocks``). True when nothing is left of them."""
        return self.retired.sweep(self, max_blocks)

    def open(self, key_space: KeySpace) -> Space:
        """The space, made where it is missing; ``drop_unused`` removes it again if it stays empty."""
        space = self._spaces.get(key_space)
        if space is None:
            space = Space(key_space, self._next_number, {})
            self._next_number += 1
            self._spaces[key_space] = self._numbered[space.number] = space
            self._unused.append(space)
        return space

    def find(self, key_space: KeySpace) -> Space | None:
        """The space, if it has a block."""
        return self._spaces.get(key_space)

    def space_of(self, ref: Ref) -> Space | None:
        """The space of a ref; None where it has gone since."""
        return self._numbered.get(ref >> _KEY_BITS)

    def drop_unused(self) -> None:
        """Remove the spaces that were opened and never used."""
        if self._unused:
            for space in self._unused:
                self._drop_if_empty(space)
            self._unused.clear()

    def claim(
        self, refs: Sequence[Ref], slot: int, bits: int, cleared: int = 0
    ) -> list[tuple[Ref, int]]:
        """Set ``bits`` of ``slot`` on every block, and clear ``cleared``.

        O(blocks).

        Returns:
            For every block that had one of either before: its ref and the slot's bits as they were.
        """
        shift = slot * STRIDE
        added, dropped, watched = bits << shift, cleared << shift, (bits | cleared) << shift
        met: list[tuple[Ref, int]] = []
        number = -1
        masks: dict[int, int] = {}
        last_old, last_new, last_bits, is_met = -1, 0, 0, False
        for ref in refs:
            if ref >> _KEY_BITS != number:
                number = ref >> _KEY_BITS
                masks = self._numbered[number].masks
            key = ref & KEY_MASK if number else ref
            old = masks.get(key, 0)
            if old != last_old:
                last_old, last_new = old, self._intern((old & ~dropped) | added)
                last_bits, is_met = old >> shift & SLOT, old & watched != 0
            if is_met:
                met.append((ref, last_bits))
            masks[key] = last_new
        return met

    def release(self, refs: Sequence[Ref], slot: int, bits: int) -> list[tuple[Ref, int]]:
        """Clear ``bits`` of ``slot`` on every block; a block without a holder goes.

        O(blocks).

        Returns:
            For every block that had more of ``bits`` than the lowest: its ref and the slot's bits as
            they were.
        """
        shift = slot * STRIDE
        kept, watched = ~(bits << shift), (bits & (bits - 1)) << shift
        met: list[tuple[Ref, int]] = []
        number = -1
        space: Space | None = None
        masks: dict[int, int] = {}
        last_old, last_new = -1, 0
        for ref in refs:
            if ref >> _KEY_BITS != number:
                self._drop_if_empty(space)
                number = ref >> _KEY_BITS
                space = self._numbered[number]
                masks = space.masks
            key = ref & KEY_MASK if number else ref
            old = masks[key]
            if old != last_old:
                last_old, last_new = old, self._intern(old & kept)
            if old & watched:
                met.append((ref, old >> shift & SLOT))
            if last_new:
                masks[key] = last_new
            else:
                del masks[key]
        self._drop_if_empty(space)
        return met

    def strip(self, refs: Iterable[Ref], slot: int) -> None:
        """Clear every bit of ``slot`` on those of the blocks that still have one. O(blocks)."""
        kept = ~(SLOT << slot * STRIDE)
        last_old, last_new = -1, 0
        for ref in refs:
            space = self._numbered.get(ref >> _KEY_BITS)
            key = ref & KEY_MASK
            old = 0 if space is None else space.masks.get(key, 0)
            if space is None or old == old & kept:
                continue
            if old != last_old:
                last_old, last_new = old, self._intern(old & kept)
            if last_new:
                space.masks[key] = last_new
            else:
                del space.masks[key]
                self._drop_if_empty(space)

    def slot_bits(self, space: Space, keys: Sequence[BlockKey], slot: int) -> list[int]:
        """The slot's bits on each of ``keys``; O(blocks)."""
        shift = slot * STRIDE
        found: list[int] = []
        for mask, alike in groupby(map(space.masks.get, keys, repeat(0))):
            bits = mask >> shift & SLOT
            found += [bits for _ in alike]
        return found

    def bits(self, ref: Ref, slot: int) -> int:
        """The slot's bits on one block; 0 where there is none."""
        space = self.space_of(ref)
        if space is None:
            return 0
        return space.masks.get(ref & KEY_MASK, 0) >> slot * STRIDE & SLOT

    def match(self, key_space: KeySpace, keys: Sequence[BlockKey], watched: int) -> dict[int, Run]:
        """The run of each watched slot over the blocks of one prompt.

        A run goes on as long as every block has a bit other than PREDICTED, and ends for good at the
        first that has none: nothing behind a hole counts. PREDICTED blocks that follow it directly are
        counted apart, together with what they connect to. O(blocks + changes of holders + slots).

        Args:
            watched: of `slots_mask`.

        Returns:
            The runs of those slots that have one.
        """
        space = self._spaces.get(key_space)
        if space is None or not keys:
            return {}
        get = space.masks.get
        previous = get(keys[0])
        if previous is None:
            return {}
        walk = _Walk(previous & watched)
        alive = walk.alive
        for index, key in enumerate(keys):
            mask = get(key, 0)
            if mask != previous:
                changed = (mask ^ previous) & alive
                previous = mask
                if changed:
                    alive = walk.turn(index, changed, mask)
            if not alive:
                break
        return walk.runs(len(keys))

    @property
    def num_blocks(self) -> int:
        """Blocks with at least one bit, over all key spaces."""
        return sum(len(space.masks) for space in self._spaces.values())

    @property
    def num_spaces(self) -> int:
        """Key spaces with at least one block."""
        return len(self._spaces)

    def blocks_of(self, slot: int) -> Iterator[tuple[Ref, int]]:
        """Every block on which the slot has a bit, with its bits; O(all blocks). For checks."""
        shift = slot * STRIDE
        for space in self._spaces.values():
            base = space.number << _KEY_BITS
            for key, mask in space.masks.items():
                bits = mask >> shift & SLOT
                if bits:
                    yield Ref(base | key), bits

    def check(self) -> None:
        """Verify the invariants; O(all blocks)."""
        assert not self._unused, f"unused spaces: {self._unused}"
        assert {space.number for space in self._spaces.values()} == self._numbered.keys()
        self.retired.check()
        for slot, listed in self.retired.listed().items():
            assert {ref for ref, _ in self.blocks_of(slot)} <= listed, f"bits nobody lists: {slot}"
        live = (1 << self._num_slots * STRIDE) - 1
        for slot in self._free_slots:
            live &= ~(SLOT << slot * STRIDE)
        for key_space, space in self._spaces.items():
            assert self._numbered[space.number] is space
            assert space.key_space == key_space
            assert space.masks, f"empty space: {key_space}"
            for key, mask in space.masks.items():
                assert mask > 0, f"node without a holder: {key}"
                assert mask & ~live == 0, f"bits of a free slot: {key} {mask:b}"

    def _intern(self, mask: int) -> int:
        if len(self._interned) >= _MAX_INTERNED:
            self._interned.clear()  # sharing starts anew; masks in use stay as they are
        return self._interned.setdefault(mask, mask)

    def _drop_if_empty(self, space: Space | None) -> None:
        if space is not None and not space.masks and space.number in self._numbered:
            del self._spaces[space.key_space]
            del self._numbered[space.number]


_NOTHING, _GPU, _HOST, _STORAGE, _OBSERVED, _PREDICTED = range(6)


def _kind(bits: int) -> int:
    """What a block with these bits counts as: its fastest tier.

    Evidence says that the block is on GPU. It ranks behind an announced HOST copy all the same, so that
    the numbers of announced blocks stay exact, and before STORAGE, which costs far more.
    """
    order = (
        (GPU, _GPU), (HOST, _HOST), (OBSERVED, _OBSERVED),
        (STORAGE, _STORAGE), (PREDICTED, _PREDICTED),
    )  # fmt: skip
    return next((kind for bit, kind in order if bits & bit), _NOTHING)


_KINDS = tuple(_kind(bits) for bits in range(SLOT + 1))
_WHOLE_SLOTS = bytes([0] + [SLOT] * 255)  # a byte with any bit becomes one with every bit


class _Stretch:
    """A slot on the way along a prompt: what its blocks count as since where, and its run so far.

    Slots that have been alike from the first block on share one.
    """

    __slots__ = ("counts", "is_shared", "kind", "start")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.start = 0
        self.counts = [0] * (_PREDICTED + 1)
        self.is_shared = False

    def own(self) -> "_Stretch":
        """A stretch that can be changed for one slot alone."""
        if not self.is_shared:
            return self
        return _Stretch(self.kind)  # nothing of a shared one has been counted

    def end(self, index: int) -> None:
        """The blocks before ``index`` are counted."""
        self.counts[self.kind] += index - self.start


class _Walk:
    """The runs of several slots while the walk along a prompt goes on.

    A slot's stretch of equal kind is counted when it ends, so the walk costs nothing where no holder
    changes.
    """

    __slots__ = ("_stretches", "alive")

    def __init__(self, first_mask: int) -> None:
        self._stretches: dict[int, _Stretch] = {}
        self.alive = 0
        row = first_mask.to_bytes(first_mask.bit_length() // 8 + 1, "little")
        shared: dict[int, _Stretch] = {}
        for slot, bits in enumerate(row):
            if bits:
                kind = _KINDS[bits]
                stretch = shared.get(kind)
                if stretch is None:
                    stretch = shared[kind] = _Stretch(kind)
                else:
                    stretch.is_shared = True
                self._stretches[slot] = stretch
        self.alive = int.from_bytes(row.translate(_WHOLE_SLOTS), "little")

    def turn(self, index: int, changed: int, mask: int) -> int:
        """At block ``index`` the bits ``changed`` differ from the block before.

        Returns:
            The slots whose runs go on, every bit of each.
        """
        while changed:
            slot = (changed.bit_length() - 1) // STRIDE
            shift = slot * STRIDE
            changed &= (1 << shift) - 1
            stretch = self._stretches[slot]
            kind, before = _KINDS[mask >> shift & SLOT], stretch.kind
            if kind == before or (before == _PREDICTED and kind):
                continue  # past the run, what connects to predicted blocks counts with them
            stretch = self._stretches[slot] = stretch.own()
            stretch.end(index)
            stretch.kind, stretch.start = kind, index
            if not kind:
                self.alive &= ~(SLOT << shift)
        return self.alive

    def runs(self, length: int) -> dict[int, Run]:
        """Close every stretch at the prompt's end."""
        runs: dict[int, Run] = {}
        shared: dict[int, Run] = {}  # by kind
        for slot, stretch in self._stretches.items():
            run = shared.get(stretch.kind) if stretch.is_shared else None
            if run is None:
                stretch.end(length)
                run = Run(*stretch.counts[_GPU:])
                if stretch.is_shared:
                    shared[stretch.kind] = run
            runs[slot] = run
        return runs
