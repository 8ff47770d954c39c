"""Who holds which block: one integer a block, a few bits a rank.

Every key space is a dictionary from block key to a mask. A rank, or a storage pool, owns a *slot*, one byte of
every mask (`indexer.slot_bits`).

Blocks of one prefix nearly always have the same holders, so equal masks are interned: they share memory,
and a lookup that compares each mask with the one before pays one dictionary access a block however many
ranks there are. A *ref* names a block across key spaces in one integer, ``space number << 64 | key``; the
first space has number 0, there a ref is the key itself.

Invariants: no mask is 0 and no space is empty (the last holder takes the node along, the last node its
space); numbers of spaces are never used twice, so a ref that outlives its space resolves to nothing;
a slot is free only while no mask has a bit of it; one that is given up with its bits is retired before.
"""

import heapq
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NewType, cast

from indexer.claim_ages import ClaimClock
from indexer.fleet_share import UNSHARED, FleetShare
from indexer.mask_runs import MaskRuns
from indexer.prefix_walk import PrefixWalk, Run, SharedBits, with_shared
from indexer.retired_slots import RetiredSlots
from indexer.segments import MIN_BLOCKS, Segments
from indexer.slot_bits import FIRST_SLOT, NUMBER, SLOT, STRIDE
from protocol import BlockKey, KeySpace

Ref = NewType("Ref", int)
"""A block in a key space, as one integer."""

_KEY_BITS = 64
KEY_MASK = (1 << _KEY_BITS) - 1
_MAX_INTERNED = 1 << 16


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
    """All blocks of the fleet. Pure; one owner.

    Args:
        share: what each slot's owner may keep beside its claims.

    Attributes:
        has_salts: a key space with a salt was ever opened: not all prompts are of one namespace.
        version: another one after every change of a mask.
    """

    def __init__(self, share: FleetShare = UNSHARED) -> None:
        self.share = share
        self._spaces: dict[KeySpace, Space] = {}
        self._numbered: dict[int, Space] = {}
        self._next_number = 0
        self.has_salts = False
        self.version = 0
        self._unused: list[Space] = []
        self._free_slots: list[int] = []
        self._num_slots = FIRST_SLOT
        self._segments = Segments()
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
            self.has_salts = self.has_salts or key_space.salt is not None
            self._spaces[key_space] = self._numbered[space.number] = space
            self._unused.append(space)
        return space

    def spaces(self) -> dict[int, Space]:
        """Every space that has a block, by its number; O(spaces)."""
        return self._numbered.copy()

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
        self.version += 1
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
                last_old, last_new = old, self._changed(old, (old & ~dropped) | added)
                last_bits, is_met = old >> shift & SLOT, old & watched != 0
            if is_met:
                met.append((ref, last_bits))
            masks[key] = last_new
        return met

    def change_prompt(self, refs: Sequence[Ref], slot: int, bits: int, cleared: int) -> None:
        """Set ``bits`` of ``slot`` on every block, and clear ``cleared``; a block without a holder goes. O(blocks), the
        cheaper the fewer holders.

        Args:
            refs: along one prompt, each once.
        """
        if not refs:
            return
        self.version += 1
        space = self._numbered[refs[0] >> _KEY_BITS]
        keys = [ref & KEY_MASK for ref in refs] if space.number else refs
        added, dropped = bits << slot * STRIDE, cleared << slot * STRIDE
        runs, start = self.runs(space, keys), 0
        for end, old in runs.all():
            mask, part = self._changed(old, (old & ~dropped) | added), keys[start:end]
            if not mask:
                deque(map(space.masks.__delitem__, part), maxlen=0)
            elif mask != old:
                if end - start >= MIN_BLOCKS:
                    mask = self._segments.numbered(mask, runs.packed[start:end])
                space.masks.update(dict.fromkeys(part, mask))
            start = end
        self._drop_if_empty(space)

    def release(self, refs: Sequence[Ref], slot: int, bits: int) -> list[tuple[Ref, int]]:
        """Clear ``bits`` of ``slot`` on every block; a block without a holder goes.

        O(blocks).

        Returns:
            For every block that had more of ``bits`` than the lowest: its ref and the slot's bits as
            they were.
        """
        self.version += 1
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
                last_old, last_new = old, self._changed(old, old & kept)
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
        self.version += 1
        kept = ~(SLOT << slot * STRIDE)
        last_old, last_new = -1, 0
        for ref in refs:
            space = self._numbered.get(ref >> _KEY_BITS)
            key = ref & KEY_MASK
            old = 0 if space is None else space.masks.get(key, 0)
            if space is None or old == old & kept:
                continue
            if old != last_old:
                last_old, last_new = old, self._changed(old, old & kept)
            if last_new:
                space.masks[key] = last_new
            else:
                del space.masks[key]
                self._drop_if_empty(space)

    def runs(
        self, space: Space, keys: Sequence[int], packed: "array[int] | None" = None
    ) -> MaskRuns:
        """The masks of ``keys``, which are to be read before the index changes; ``packed``: the same keys."""
        return MaskRuns(space.masks, self._segments, keys, packed, self, self.version)

    def is_current(self, runs: MaskRuns) -> bool:
        """Whether they were made by this index, and it has not changed since."""
        return runs.index is self and runs.version == self.version

    def slot_bits(self, space: Space, keys: Sequence[BlockKey], slot: int) -> list[int]:
        """The slot's bits on each of ``keys``; O(blocks)."""
        runs = self.runs(space, keys).of_slot(slot)
        return [bits for start, end, bits in runs for _ in range(start, end)]

    def bits(self, ref: Ref, slot: int) -> int:
        """The slot's bits on one block; 0 where there is none."""
        space = self.space_of(ref)
        if space is None:
            return 0
        return space.masks.get(ref & KEY_MASK, 0) >> slot * STRIDE & SLOT

    def match(
        self,
        runs: MaskRuns,
        watched: int,
        gpu_first: frozenset[int] = frozenset(),
        pools: Sequence[SharedBits] = (),
    ) -> dict[int, Run]:
        """The run of each watched slot over the blocks of one prompt.

        A run goes on as long as every block has a bit other than PREDICTED that its engine can use, and
        ends for good at the first that has none: nothing behind a hole counts. PREDICTED blocks that follow
        it directly are counted apart, together with what they connect to. O(changes of holders + slots), and what
        ``runs`` read.

        Args:
            watched: of `slots_mask`.
            gpu_first: slots of ranks whose engine takes GPU blocks first.
            pools: what each storage pool holds, every slot attached to it holds too.

        Returns:
            The runs of those slots that have one.
        """
        walk: PrefixWalk | None = None
        previous = end = index = 0
        read = runs.read
        while index < len(read) or runs.more():
            next_end, held = read[index]
            index += 1
            mask = with_shared(held, pools) if pools else held
            if walk is None:
                walk = PrefixWalk(mask & watched, gpu_first)
            else:
                changed = (mask ^ previous) & walk.alive
                if changed:
                    walk.turn(end, changed, mask)
            if not walk.alive:
                break
            previous, end = mask, next_end
        return {} if walk is None else walk.runs(end)

    @property
    def num_segmented(self) -> int:
        """Blocks that lie in a segment."""
        return self._segments.num_blocks

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
        num_segments = 0
        for key_space, space in self._spaces.items():
            assert self._numbered[space.number] is space
            assert space.key_space == key_space
            assert space.masks, f"empty space: {key_space}"
            num_segments += len(self._segments.check(space.masks))
            for key, mask in space.masks.items():
                assert mask & ~NUMBER, f"node without a holder: {key}"
                assert mask & ~live == 0, f"bits of a free slot: {key} {mask:b}"
        assert num_segments == len(self._segments), "a segment without blocks"

    def _changed(self, old: int, new: int) -> int:
        """The mask of a block that had ``old`` and is given ``new``: the old one itself where they are equal."""
        if new == old:
            return old
        number = old & NUMBER
        if number:
            self._segments.dissolve(number)
            new &= ~NUMBER
        return self._intern(new)

    def _intern(self, mask: int) -> int:
        if len(self._interned) >= _MAX_INTERNED:
            self._interned.clear()  # sharing starts anew; masks in use stay as they are
        return self._interned.setdefault(mask, mask)

    def _drop_if_empty(self, space: Space | None) -> None:
        if space is not None and not space.masks and space.number in self._numbered:
            del self._spaces[space.key_space]
            del self._numbered[space.number]
